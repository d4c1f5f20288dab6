import * as driver from 'node-zookeeper-client'
import { zookeeper } from '../../src/engines/zookeeper/index.ts'
import { decodeName, readLeft, readPlace } from '../../src/engines/zookeeper/names.ts'
import { decodeData } from '../../src/engines/zookeeper/znode-data.ts'
import { startZookeeper } from '../../harness/servers/zookeeper.ts'
import type { Process } from '../../sim/process.ts'
import type { Seeded } from '../../sim/random.ts'
import type { Reply } from '../../sim/redis.ts'
import type { Connection, Link } from '../connection.ts'
import { NOT_UNDONE, type Courier } from '../courier.ts'
import type { Left, Target } from '../target.ts'
import { ownersIn, seenBy, wordsOf } from '../words.ts'
import { Expiries } from './expiries.ts'
import { AT, CarriedSocket, FrameReader, isDone, operationsOf, sessionIn, TYPE, Wire } from './zookeeper-wire.ts'

const REQUEST_TIMEOUT_MS = 300
const WALL_MS = 1_700_000_000_000
const ROOT = '/ringfence'
/** What the server is told of a session's time, so that its own clock never ends one. */
const LONG_MS = 3_600_000
/** A leader hears of a session in its followers' reports, which come this often in a session's time. */
const REPORTS = 4
/** The engine takes its time to connect for the first time, and for the answer once more. */
const LATE_MS = 5000 + 8 * REQUEST_TIMEOUT_MS

interface Session {
  readonly id: Buffer
  readonly password: Buffer
  readonly timeoutMs: number
  readonly connection: Connection<Buffer, Buffer>
  /** Whose places were asked for in it. */
  readonly owners: Set<string>
  /** When its last request came; undefined if the leader knows all that there was. */
  touchedMs: number | undefined
}

/**
 * Leases in ZooKeeper by its driver, whose sockets are the schedule's: requests keep their order, and what is lost ends the
 * connection. The schedule is the leader's clock: it closes the sessions of which nothing was heard for their time.
 */
export async function zookeeperTarget(): Promise<Target> {
  const server = await startZookeeper({ clockShift: true, maxSessionMs: LONG_MS })
  const address = `127.0.0.1:${server.port}`
  const admin = driver.createClient(address, { sessionTimeout: LONG_MS })
  await new Promise<void>((resolve) => {
    admin.once('connected', resolve)
    admin.connect()
  })
  const sessions = new Map<string, Session>()
  const wires = new Set<Wire>()
  const hearAll = async (): Promise<void> => {
    for (const wire of wires) await wire.hear()
  }
  const expiries = new Expiries(async (name) => {
    const { id, password, connection } = sessions.get(name)!
    await Wire.close(server.port, id, password)
    connection.hangUp()
    await hearAll()
  })
  const world: World = { port: server.port, sessions, wires, hearAll, expiries }
  return {
    name: 'zookeeper',
    wrong: { ...seenBy(CHANGES), ...NOT_UNDONE },
    bounds: { ttlMs: [400, 2000], shared: true, repeats: false, moves: false },
    looksFirst: true,
    lateMs: LATE_MS,
    async begin() {
      await expiries.clear()
      for (const wire of wires) wire.end()
      wires.clear()
      sessions.clear()
      await removeAll(admin)
      return WALL_MS
    },
    async clock(wallMs) {
      server.stopClock(wallMs)
      await expiries.pass(wallMs)
    },
    open({ courier, process, random, maxTtlMs, wrong }) {
      const dial = (): CarriedSocket => dialled(world, { courier, process, wrong })
      const createClient = (servers: string, options: Options): unknown =>
        overSockets(driver.createClient(servers, options), { dial, process, random, options })
      const terms = { path: ROOT, maxTtl: maxTtlMs, clock: process, requestTimeout: REQUEST_TIMEOUT_MS }
      return zookeeper({ ...driver, createClient }, address, terms)
    },
    left: async () => leftIn(admin, expiries.nowMs),
    async [Symbol.asyncDispose]() {
      for (const wire of wires) wire.end()
      admin.close()
      await server.stop()
    },
  }
}

interface Options {
  readonly sessionTimeout: number
  readonly spinDelay: number
  readonly retries: number
}

/** What the driver's client has and its types do not tell of. */
interface Manager {
  serverAttempts: number
  socket: CarriedSocket
  connect(): void
  setState(state: number): void
  onSocketConnected(): void
  onSocketData(bytes: Buffer): void
  onSocketClosed(hasError: boolean): void
  onSocketError(error: Error): void
}

/** The driver's own number for it. */
const CONNECTING = 1

/** The driver's client, which connects as it does by itself, but in the time of the schedule. */
function overSockets(
  client: object,
  { dial, process, random, options }: { dial: () => CarriedSocket; process: Process; random: Seeded; options: Options },
): unknown {
  const { connectionManager: manager } = client as { connectionManager: Manager }
  manager.connect = () => {
    manager.setState(CONNECTING)
    const waitMs = manager.serverAttempts > 0 ? random.between(0, options.spinDelay) : 0
    manager.serverAttempts++
    process.timer(() => {
      manager.socket = dial()
      manager.socket.on('connect', () => manager.onSocketConnected())
      manager.socket.on('data', (bytes: Buffer) => manager.onSocketData(bytes))
      manager.socket.on('close', (hasError: boolean) => manager.onSocketClosed(hasError))
      manager.socket.on('error', (error: Error) => manager.onSocketError(error))
    }, waitMs)
  }
  return client
}

interface World {
  readonly port: number
  readonly sessions: Map<string, Session>
  readonly wires: Set<Wire>
  readonly hearAll: () => Promise<void>
  readonly expiries: Expiries
}

interface Client {
  readonly courier: Courier
  readonly process: Process
  readonly wrong: string | undefined
}

/** A connection to the real server, made when the greeting arrives there. */
function dialled({ port, sessions, wires, hearAll, expiries }: World, client: Client): CarriedSocket {
  const { courier, process, wrong } = client
  const bug = CHANGES.find(({ name }) => name === wrong)
  let wire: Wire | undefined
  let session: Session | undefined
  let isGreeted = false
  const greet = async (greeting: Buffer): Promise<Buffer | undefined> => {
    wire = await Wire.open(port)
    wires.add(wire)
    wire.onNotice = (notice) => connection.push(() => socket.receive(notice))
    const asked = Buffer.from(greeting)
    asked.writeInt32BE(LONG_MS, AT.greeting.timeout)
    const welcome = await wire.ask(asked)
    if (welcome === undefined || welcome.readInt32BE(AT.welcome.timeout) <= 0) return welcome
    const { session: id, password } = sessionIn(welcome, 'welcome')
    const name = id.toString('hex')
    const before = sessions.get(name)
    const timeoutMs = before?.timeoutMs ?? greeting.readInt32BE(AT.greeting.timeout)
    session = { id, password, timeoutMs, connection, owners: before?.owners ?? new Set(), touchedMs: undefined }
    sessions.set(name, session)
    expiries.begins(name, timeoutMs * (bug?.session ?? 1))
    const told = Buffer.from(welcome)
    told.writeInt32BE(timeoutMs, AT.welcome.timeout)
    return told
  }
  const link: Link<Buffer, Buffer> = {
    inWords(request) {
      if (!isGreeted) {
        isGreeted = true
        return { words: wordsOf('greet', []), replies: () => ['answered'] }
      }
      const owners = session?.owners ?? new Set()
      if (request.readInt32BE(AT.type) === TYPE.close && !courier.isHealed) {
        // With a session go its places. After the healing all of them have been given back before.
        return { words: wordsOf('release', [...owners]), replies: () => [...owners].map(() => 1) }
      }
      const said = inWords(request, process.name)
      for (const { what, owner } of said.words) if (what === 'acquire') owners.add(owner)
      return said
    },
    async visit(request) {
      if (wire === undefined) return greet(request)
      if (session !== undefined) touch(session, expiries)
      const type = request.readInt32BE(AT.type)
      // What it asks for last: whether to be told.
      if (type === TYPE.setWatches || (type === TYPE.getData && request.at(-1) === 1)) wire.watches = true
      const answer = await wire.ask(bug?.request?.(request) ?? request)
      if (type === TYPE.close && session !== undefined) {
        expiries.gone(session.id.toString('hex'))
        connection.hangUp()
      }
      await hearAll()
      return answer === undefined ? undefined : (bug?.answer?.(type, answer, process.name) ?? answer)
    },
    async left() {
      wire?.end()
    },
  }
  const connection = courier.connect(link)
  const socket = new CarriedSocket(connection, process)
  return socket
}

/**
 * A request has come from the session. The leader hears of it with the follower's next report, so that it does not know of the
 * last one: should the session end, its follower is one that has died before it could tell.
 */
function touch(session: Session, expiries: Expiries): void {
  const everyMs = session.timeoutMs / REPORTS
  const { nowMs } = expiries
  const reportedMs = Math.ceil((session.touchedMs ?? nowMs) / everyMs) * everyMs
  if (reportedMs < nowMs) expiries.renewed(session.id.toString('hex'), reportedMs)
  session.touchedMs = nowMs
}

function inWords(request: Buffer, process: string): ReturnType<Link<Buffer, Buffer>['inWords']> {
  const operations = operationsOf(request)
  const types = new Set(operations.map(({ type }) => type))
  const what = types.has(TYPE.create)
    ? 'acquire'
    : types.has(TYPE.delete)
      ? 'release'
      : types.has(TYPE.setData)
        ? 'extend'
        : 'look'
  const owners = ownersIn(operations.map(({ path }) => decodeURIComponent(path)).join(' '))
  if (what === 'look' || owners.length === 0) return { words: wordsOf('look', []), replies: () => ['answered'] }
  const replies = (answer: Buffer): Reply[] =>
    owners.map((owner) => {
      if (!isDone(request, answer)) return what === 'extend' && owners.length > 1 ? ['not all'] : [0]
      // Another one's lease is over, and its holder may not know yet.
      return what === 'release' && !owner.includes(`@${process}`) ? [0] : 1
    })
  return { words: wordsOf(what, owners), replies }
}

function asked<T>(send: (done: (error: unknown, value: T) => void) => void): Promise<T> {
  return new Promise((resolve, reject) => send((error, value) => (error ? reject(error) : resolve(value))))
}

async function removeAll(admin: driver.Client): Promise<void> {
  if ((await asked((done) => admin.exists(ROOT, done))) === null) return
  for (const path of [...(await znodesIn(admin)).map(({ path }) => path), ROOT])
    await asked((done) => admin.remove(path, (error) => done(error, undefined)))
}

/** All that are below the root: those of a folder before it. */
async function znodesIn(admin: driver.Client): Promise<{ folder: string; name: string; path: string }[]> {
  const folders = await asked<string[]>((done) => admin.getChildren(ROOT, done))
  const all = await Promise.all(
    folders.map(async (folder) => {
      const names = await asked<string[]>((done) => admin.getChildren(`${ROOT}/${folder}`, done))
      return [
        ...names.map((name) => ({ folder, name, path: `${ROOT}/${folder}/${name}` })),
        { folder, name: '', path: `${ROOT}/${folder}` },
      ]
    }),
  )
  return all.flat()
}

/** The places of sessions that live, and what was left to run out and has not yet. */
async function leftIn(admin: driver.Client, nowMs: number): Promise<Left[]> {
  const left: Left[] = []
  for (const { folder, name, path } of await znodesIn(admin)) {
    const place = readPlace(name)
    const owner = place?.owner ?? readLeft(name)
    if (owner === undefined) continue
    const leftMs = place === undefined ? await timeLeft(admin, path, nowMs) : Infinity
    if (leftMs > 0) left.push({ resource: decodeName(folder) ?? folder, owner, leftMs })
  }
  return left
}

async function timeLeft(admin: driver.Client, path: string, nowMs: number): Promise<number> {
  const [data, mtime] = await asked<readonly [Buffer, Buffer]>((done) =>
    admin.getData(path, (error, found, stat) => done(error, [found, stat?.mtime])),
  )
  return (decodeData(data)?.ttlMs ?? Infinity) - (nowMs - Number(mtime.readBigInt64BE()))
}

/** Known bugs, and what sees them. */
const CHANGES: readonly {
  readonly name: string
  readonly seenBy: string
  /** Which part of its time a session lasts. */
  readonly session?: number
  readonly request?: (request: Buffer) => Buffer
  readonly answer?: (type: number, answer: Buffer, process: string) => Buffer
}[] = [
  { name: 'a place that does not look who was before it', seenBy: 'exclusion', answer: onlyOwn },
  { name: 'a session of a third of its time', seenBy: 'exclusion', session: 1 / 3 },
  { name: 'places that outlive their session', seenBy: 'no key beyond its ttl', request: lasting },
]

const EPHEMERAL_SEQUENTIAL = 3
const PERSISTENT_SEQUENTIAL = 2
const INT_BYTES = 4

function lasting(request: Buffer): Buffer {
  const changed = Buffer.from(request)
  for (const { type, endAt } of operationsOf(request)) {
    const at = endAt - INT_BYTES
    if (type === TYPE.create && changed.readInt32BE(at) === EPHEMERAL_SEQUENTIAL)
      changed.writeInt32BE(PERSISTENT_SEQUENTIAL, at)
  }
  return changed
}

/** Of a list of places those of the process itself. */
function onlyOwn(type: number, answer: Buffer, process: string): Buffer {
  if (type !== TYPE.children || answer.readInt32BE(AT.reply.error) !== 0) return answer
  const reader = new FrameReader(answer, AT.reply.payload)
  const names = Array.from({ length: reader.int() }, () => reader.text())
  const own = names.filter((name) => readPlace(name)?.owner.includes(`@${process}`) !== false)
  const texts = own.map((name) => Buffer.concat([int(Buffer.byteLength(name)), Buffer.from(name)]))
  const header = answer.subarray(INT_BYTES, AT.reply.payload)
  const body = Buffer.concat([header, int(own.length), ...texts, answer.subarray(reader.at)])
  return Buffer.concat([int(body.length), body])
}

function int(value: number): Buffer {
  const bytes = Buffer.alloc(INT_BYTES)
  bytes.writeInt32BE(value)
  return bytes
}
