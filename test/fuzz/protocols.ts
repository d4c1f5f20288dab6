import { BSON } from 'mongodb'

/** What a server says in its own language. The fuzzing begins with this, and breaks it. */
export interface Protocol {
  /** Sent as soon as somebody connects. */
  readonly greeting?: Buffer
  /** The right answer to what a driver asks before its user's requests; undefined where it is one of these. `nth`: which it is on its connection. */
  opening(request: Buffer, nth: number): Buffer | undefined
  /** Answers that a server could give to this request. */
  answers(request: Buffer): readonly Buffer[]
}

/** A token as the engines make them, so that it is not found in other bytes by chance. */
const TOKEN = 1_767_225_600_000_123n
const OWNER = 'me@here'

const text = (value: string): Buffer => Buffer.from(value, 'latin1')

function bigEndian(...numbers: readonly (readonly [value: number, bytes: number])[]): Buffer {
  return Buffer.concat(
    numbers.map(([value, bytes]) => {
      const buffer = Buffer.alloc(bytes)
      buffer.writeIntBE(value, 0, bytes)
      return buffer
    }),
  )
}

const bulk = (value: string): string => `$${Buffer.byteLength(value)}\r\n${value}\r\n`
const list = (...items: readonly string[]): string => `*${items.length}\r\n${items.join('')}`
const INFO =
  'redis_version:8.0.0\r\nrun_id:0123456789abcdef\r\nuptime_in_seconds:100000\r\nrole:master\r\nloading:0\r\n'
const RESP = [
  bulk(String(TOKEN)),
  `:${TOKEN}\r\n`,
  ':1\r\n',
  ':0\r\n',
  '+OK\r\n',
  '$-1\r\n',
  '*-1\r\n',
  '_\r\n',
  '*0\r\n',
  bulk(''),
  bulk(INFO),
  bulk(OWNER),
  list(bulk('0'), bulk(OWNER), ':-1\r\n'),
  list(bulk('offered'), bulk(''), ':0\r\n'),
  list(bulk('behind'), bulk('other@there'), ':5000\r\n'),
  list(bulk('0'), list(bulk('a'), bulk('b'))),
  list(bulk(OWNER), ':5000\r\n', bulk(String(TOKEN))),
  list(':1767225600\r\n', ':123\r\n'),
  '-NOSCRIPT No matching script. Please use EVAL.\r\n',
  '-MOVED 5 127.0.0.1:1\r\n',
  '-ERR nonsense\r\n',
  '!12\r\nERR nonsense\r\n',
  list(bulk('message'), bulk('a'), bulk('b')),
  list(bulk('subscribe'), bulk('a'), ':1\r\n'),
  `>3\r\n${bulk('message')}${bulk('a')}${bulk('b')}`,
  `%1\r\n${bulk('a')}:1\r\n`,
  `~1\r\n${bulk('a')}`,
  ',1.5\r\n',
  '(99999999999999999999\r\n',
  '#t\r\n',
  '=7\r\ntxt:abc\r\n',
  '|1\r\n+a\r\n+b\r\n:1\r\n',
  '$?\r\n;1\r\na\r\n;0\r\n',
  '*1000000000\r\n',
  '$1000000000\r\n',
].map(text)

/** Drivers send `HELLO`, `CLIENT`, `INFO` and the like before anything else. */
const redis: Protocol = {
  opening(request) {
    const names = [...request.toString('latin1').matchAll(/\*\d+\r\n\$\d+\r\n(\w+)\r\n(?:\$\d+\r\n(\w+)\r\n)?/g)]
    const replies = names.flatMap(([, name = '', argument]) => {
      switch (name.toUpperCase()) {
        case 'HELLO':
          return [argument === '3' ? `%1\r\n${bulk('proto')}:3\r\n` : list(bulk('proto'), ':2\r\n')]
        case 'INFO':
          return [bulk(INFO)]
        case 'CLIENT':
        case 'SELECT':
        case 'AUTH':
          return ['+OK\r\n']
        default:
          return []
      }
    })
    return replies.length === names.length && replies.length > 0 ? text(replies.join('')) : undefined
  },
  answers: () => RESP,
}

/** Columns of all statements at once, each as it may be. */
const ROW = {
  clock: String(TOKEN),
  autocommit: 'on',
  token: String(TOKEN),
  resource: '61',
  owner: Buffer.from(OWNER).toString('hex'),
  remaining: '5000',
  held: '0',
  wanted: null,
  readers: null,
  state: 'free',
  pid: '1',
  live: '1',
  awaited: '0',
  lease: '1',
  session: null,
  columns: 'resource,token,owner,acquired_at,expires_at,readers,wanted_until',
} as const
const COLUMNS = Object.keys(ROW)
const VALUES = Object.values(ROW)

function pgMessage(code: string, ...parts: readonly (string | Buffer)[]): Buffer {
  const body = Buffer.concat(parts.map((part) => (typeof part === 'string' ? text(part) : part)))
  return Buffer.concat([text(code), bigEndian([body.length + 4, 4]), body])
}

const PG_READY = pgMessage('Z', 'I')
const PG_BEFORE = Buffer.concat([pgMessage('1'), pgMessage('2')])
const PG_COLUMNS = pgMessage(
  'T',
  bigEndian([COLUMNS.length, 2]),
  ...COLUMNS.flatMap((name) => [`${name}\0`, bigEndian([0, 4], [0, 2], [25, 4], [-1, 2], [-1, 4], [0, 2])]),
)
const pgRow = (values: readonly (string | null)[]): Buffer =>
  pgMessage(
    'D',
    bigEndian([values.length, 2]),
    ...values.flatMap((value) => (value === null ? [bigEndian([-1, 4])] : [bigEndian([value.length, 4]), value])),
  )
const pgDone = (tag: string): Buffer => Buffer.concat([pgMessage('C', `${tag}\0`), PG_READY])
const pgError = (code: string): Buffer => Buffer.concat([pgMessage('E', `SERROR\0C${code}\0Mnonsense\0\0`), PG_READY])
const PG_START = Buffer.concat([
  pgMessage('R', bigEndian([0, 4])),
  pgMessage('S', 'server_version\0', '16.4\0'),
  pgMessage('K', bigEndian([7, 4], [8, 4])),
  PG_READY,
])
const PG = [
  Buffer.concat([PG_BEFORE, PG_COLUMNS, pgRow(VALUES), pgDone('SELECT 1')]),
  Buffer.concat([PG_BEFORE, PG_COLUMNS, pgDone('SELECT 0')]),
  Buffer.concat([PG_BEFORE, pgMessage('n'), pgDone('UPDATE 1')]),
  ...['42P01', '40001', '22P02', '57014', '57P01'].map(pgError),
  PG_COLUMNS,
  pgRow(VALUES),
  pgRow([]),
  PG_READY,
  PG_START,
  pgMessage('A', bigEndian([7, 4]), 'ringfence_leases\0', 'x\0'),
  pgMessage('N', 'SNOTICE\0C00000\0Mnonsense\0\0'),
  pgMessage('G', bigEndian([0, 1], [1, 2], [0, 2])),
  pgMessage('W', bigEndian([0, 1], [0, 2])),
  pgMessage('d', 'x'),
  pgMessage('c'),
  pgMessage('s'),
  pgMessage('I'),
  pgMessage('R', bigEndian([3, 4])),
  pgMessage('R', bigEndian([5, 4]), 'salt'),
  pgMessage('R', bigEndian([10, 4]), 'SCRAM-SHA-256\0\0'),
  pgMessage('R', bigEndian([11, 4]), 'r=x,s=x,i=1'),
  pgMessage('R', bigEndian([12, 4]), 'v=x'),
  pgMessage('v', bigEndian([0, 4], [0, 4])),
  pgMessage('?', 'x'),
]

const postgres: Protocol = {
  opening: (_request, nth) => (nth === 0 ? PG_START : undefined),
  answers: () => PG,
}

/** A packet of MariaDB and MySQL. */
const packet = (sequence: number, ...parts: readonly (string | Buffer)[]): Buffer => {
  const body = Buffer.concat(parts.map((part) => (typeof part === 'string' ? text(part) : part)))
  const head = Buffer.alloc(4)
  head.writeUIntLE(body.length, 0, 3)
  head[3] = sequence
  return Buffer.concat([head, body])
}
const bytes = (...values: readonly number[]): Buffer => Buffer.from(values)
const short = (value: string): string => `${String.fromCharCode(value.length)}${value}`
/** Without `CLIENT_DEPRECATE_EOF`: the end of columns and of rows is a packet of its own. */
const MARIADB_GREETING = packet(
  0,
  bytes(10),
  '11.4.2-MariaDB\0',
  bytes(7, 0, 0, 0),
  '12345678\0',
  bytes(0xff, 0xf7, 33, 2, 0, 0x0f, 0x80, 21),
  Buffer.alloc(10),
  '123456789012\0',
  'mysql_native_password\0',
)
const mariadbOk = (sequence: number, affected: number): Buffer => packet(sequence, bytes(0, affected, 0, 2, 0, 0, 0))
const mariadbEnd = (sequence: number): Buffer => packet(sequence, bytes(0xfe, 0, 0, 2, 0))
const mariadbError = (code: number): Buffer => packet(1, bytes(0xff, code & 255, code >> 8), '#HY000nonsense')
const mariadbColumn = (sequence: number, name: string): Buffer =>
  packet(sequence, ...['def', '', '', '', name, name].map(short), bytes(12, 33, 0, 255, 0, 0, 0, 253, 0, 0, 0, 0, 0))
function mariadbRows(columns: readonly string[], rows: readonly (readonly (string | null)[])[]): Buffer {
  const after = columns.length + 2
  return Buffer.concat([
    packet(1, bytes(columns.length)),
    ...columns.map((name, index) => mariadbColumn(index + 2, name)),
    mariadbEnd(after),
    ...rows.map((row, index) =>
      packet(after + 1 + index, ...row.map((value) => (value === null ? bytes(0xfb) : short(value)))),
    ),
    mariadbEnd(after + 1 + rows.length),
  ])
}
const MARIADB = [
  mariadbRows(COLUMNS, [VALUES]),
  mariadbRows(COLUMNS, []),
  mariadbRows(['a'], [['1'], [null]]),
  mariadbOk(1, 1),
  mariadbOk(1, 0),
  ...[1146, 1205, 1213, 1064, 1062, 1690, 1045, 1040].map(mariadbError),
  mariadbEnd(1),
  MARIADB_GREETING,
  // A file is asked for, another way to log in, a count of columns that never come, a packet of 16 MB of which nothing comes.
  packet(1, bytes(0xfb), '/etc/hostname'),
  packet(1, bytes(0xfe), 'mysql_clear_password\0'),
  packet(1, bytes(0xfe), 'caching_sha2_password\0', '12345678901234567890\0'),
  packet(1, bytes(0xfd, 255, 255, 255)),
  packet(1, bytes(0xfe, 255, 255, 255, 255, 255, 255, 255, 255)),
  bytes(255, 255, 255, 1),
  packet(1),
]

const mariadb: Protocol = {
  greeting: MARIADB_GREETING,
  opening(request, nth) {
    if (nth === 0) return mariadbOk(request[3]! + 1, 0)
    const statement = request.toString('latin1', 5)
    if (/^set /i.test(statement)) return mariadbOk(1, 0)
    return /^select @@/i.test(statement) ? mariadbRows(['stz', 'tz'], [['UTC', 'SYSTEM']]) : undefined
  },
  answers: () => MARIADB,
}

/** OP_MSG with one document, or OP_REPLY to the first request of a connection. */
function mongoReply(request: Buffer, document: object): Buffer {
  const asked = request.length >= 16
  const isQuery = asked && request.readInt32LE(12) === 2004
  const prefix = isQuery ? Buffer.from([8, 0, 0, 0, ...Array(12).fill(0), 1, 0, 0, 0]) : Buffer.alloc(5)
  const body = Buffer.concat([prefix, BSON.serialize(document)])
  const head = Buffer.alloc(16)
  head.writeInt32LE(body.length + 16, 0)
  head.writeInt32LE(1, 4)
  head.writeInt32LE(asked ? request.readInt32LE(4) : 0, 8)
  head.writeInt32LE(isQuery ? 1 : 2013, 12)
  return Buffer.concat([head, body])
}

const hello = (): object => ({
  ok: 1,
  helloOk: true,
  isWritablePrimary: true,
  ismaster: true,
  maxBsonObjectSize: 16_777_216,
  maxMessageSizeBytes: 48_000_000,
  maxWriteBatchSize: 100_000,
  localTime: new Date(0),
  logicalSessionTimeoutMinutes: 30,
  connectionId: 1,
  minWireVersion: 0,
  maxWireVersion: 25,
})
const LEASE = {
  _id: 'a',
  owner: OWNER,
  token: BSON.Long.fromBigInt(TOKEN),
  leftMs: 5000,
  heldMs: 0,
  now: new Date(0),
}
const MONGODB: readonly object[] = [
  { ok: 1, value: LEASE, lastErrorObject: { n: 1, updatedExisting: true } },
  { ok: 1, value: null },
  { ok: 1, n: 1, nModified: 1 },
  { ok: 1, n: 0, nModified: 0 },
  { ok: 1, cursor: { id: 0, ns: 'app.ringfence', firstBatch: [LEASE] } },
  { ok: 1, cursor: { id: BSON.Long.fromNumber(5), ns: 'app.ringfence', firstBatch: [] } },
  { ok: 1, cursor: 5 },
  { ok: 1, n: 0, writeErrors: [{ index: 0, code: 11_000, errmsg: 'E11000' }] },
  ...[11_000, 10_107, 112, 50, 13, 189].map((code) => ({ ok: 0, code, errmsg: 'nonsense' })),
  { ok: 0 },
  { ok: 'x' },
  {},
  { ok: 1, writeConcernError: { code: 64, errmsg: 'nonsense' } },
  { ok: 1, $clusterTime: { clusterTime: 5 }, operationTime: 'x' },
  hello(),
]

const mongodb: Protocol = {
  opening: (request) =>
    /(hello|isMaster|ismaster)\0/.test(request.toString('latin1')) ? mongoReply(request, hello()) : undefined,
  answers: (request) => MONGODB.map((document) => mongoReply(request, document)),
}

const eight = (value: bigint): Buffer => {
  const buffer = Buffer.alloc(8)
  buffer.writeBigInt64BE(value)
  return buffer
}
const counted = (value: string | Buffer): Buffer => Buffer.concat([bigEndian([value.length, 4]), Buffer.from(value)])
const STAT = Buffer.concat([
  ...[TOKEN, TOKEN, 1n, 1n].map(eight),
  bigEndian([0, 4], [0, 4], [0, 4]),
  eight(7n),
  bigEndian([0, 4], [1, 4]),
  eight(TOKEN),
])
const PLACE = `${OWNER}-0000000001`
const ZOOKEEPER_OPEN = counted(Buffer.concat([bigEndian([0, 4], [40_000, 4]), eight(7n), counted(Buffer.alloc(16))]))

function zookeeperReply(request: Buffer, error: number, ...body: readonly Buffer[]): Buffer {
  const xid = request.length >= 8 ? request.readInt32BE(4) : 0
  return counted(Buffer.concat([bigEndian([xid, 4]), eight(TOKEN), bigEndian([error, 4]), ...body]))
}

/** What comes back of a transaction: for each step its kind, whether it is the last, and an error. */
const MULTI_END = bigEndian([-1, 4], [1, 1], [-1, 4])
const step = (kind: number, ...body: readonly Buffer[]): Buffer =>
  Buffer.concat([bigEndian([kind, 4], [0, 1], [0, 4]), ...body])

const zookeeper: Protocol = {
  opening: (_request, nth) => (nth === 0 ? ZOOKEEPER_OPEN : undefined),
  answers: (request) => [
    zookeeperReply(request, 0),
    zookeeperReply(request, 0, STAT),
    zookeeperReply(request, 0, counted('{"ttlMs":5000}'), STAT),
    zookeeperReply(request, 0, bigEndian([0, 4]), STAT),
    zookeeperReply(request, 0, bigEndian([1, 4]), counted(PLACE), STAT),
    zookeeperReply(request, 0, counted(`/ringfence/a/${PLACE}`)),
    zookeeperReply(request, 0, MULTI_END),
    zookeeperReply(request, 0, step(1, counted(`/ringfence/a/${PLACE}`)), step(5, STAT), MULTI_END),
    zookeeperReply(request, 0, step(1, counted('/ringfence/a')), step(1, counted(`/ringfence/a/${PLACE}`)), MULTI_END),
    zookeeperReply(request, 0, bigEndian([-1, 4], [0, 1], [-101, 4], [-101, 4]), MULTI_END),
    zookeeperReply(request, 0, bigEndian([1, 4], [31, 4]), counted('world'), counted('anyone'), STAT),
    zookeeperReply(request, 0, bigEndian([0x7f_ff_ff_ff, 4])),
    zookeeperReply(request, 0, bigEndian([-2, 4])),
    ...[-4, -101, -102, -103, -110, -111, -112, -115].map((error) => zookeeperReply(request, error)),
    // A ping, an event of a watch, an answer to nobody.
    counted(Buffer.concat([bigEndian([-2, 4]), eight(0n), bigEndian([0, 4])])),
    counted(Buffer.concat([bigEndian([-1, 4]), eight(0n), bigEndian([0, 4], [3, 4], [3, 4]), counted('/ringfence/a')])),
    counted(Buffer.concat([bigEndian([99, 4]), eight(0n), bigEndian([0, 4])])),
    ZOOKEEPER_OPEN,
  ],
}

export const PROTOCOLS = { redis, postgres, mariadb, mongodb, zookeeper }
