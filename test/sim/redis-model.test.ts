import { Redis as Ioredis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  ACQUIRE,
  CLAMP_US,
  CONFIRM,
  EXTEND,
  HAND_OVER,
  INSPECT,
  READER,
  RELEASE,
} from '../../src/engines/redis/scripts.ts'
import { Seeded } from '../../sim/random.ts'
import { Redis, type Reply } from '../../sim/redis.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'

/**
 * Times to live are whole units. Jumps of the clock are a sixteenth beyond whole ones, so that no few of them in a row come
 * near a whole number either: whether a key has expired is never a matter of the milliseconds that really go by.
 */
const UNIT_MS = 60_000
const BEYOND = 1 / 16
const SEQUENCES = 10_000
const STEPS = 8
/** A sequence that took longer, because the machine had other things to do, is done again. */
const MOST_MS = 500
/** What is left of a key's time is told in milliseconds, and real ones go by. */
const TOLERANCE_MS = 1_000

let server: RedisServer
let client: Ioredis

beforeAll(async () => {
  server = await startRedis({ clockShift: true })
  client = new Ioredis(server.url)
})

afterAll(async () => {
  client.disconnect()
  await server.stop()
})

type Step = { readonly command: (nowUs: number) => string[] } | { readonly jumpMs: number }

const OWNERS = ['A', 'B', 'C']
const KEYS = [
  ['l1', 'f1'],
  ['l1', 'f1', 'l2', 'f2'],
  ['l2', 'f2'],
]
const LINES = ['q1', 'q2']
const READERS = ['s1', 's2']
/** Of readers that come in the same millisecond, or in the next, one must not end with another. */
const READER_APART_MS = 1_000

function plain(...command: string[]): Step {
  return { command: () => command }
}

/** Scripts in any order on keys in any state, and what others may do to them. */
function drawStep(random: Seeded): Step {
  if (random.chance(0.15)) return { jumpMs: (random.int(-2, 4) + BEYOND) * UNIT_MS }
  const keys = random.pick(KEYS)
  const [owner, next] = [random.pick(OWNERS), random.pick(OWNERS)]
  const ttl = String(random.int(1, 3) * UNIT_MS)
  const fenceTtl = String(random.int(2, 9) * UNIT_MS)
  // Around the node's clock, within the clamp, far beyond it, and small numbers.
  const offsetUs = random.pick([-20_000_000, -1_000_000, -50, 0, 0, 0, 700, 1_000_000, 20_000_000])
  const number = (nowUs: number): string => String(random.chance(0.1) ? 5 : nowUs + offsetUs)
  const lines = keys.length === 4 ? LINES : [keys[0]!.replace('l', 'q')]
  const channels = lines.map((line) => line.replace('q', 'c'))
  const readers = lines.map((line) => line.replace('q', 's'))
  const reader = `shared:${owner}`
  const readerTtl = String(Number(ttl) + OWNERS.indexOf(owner) * READER_APART_MS)
  const call = (
    script: { text: string; sha: string },
    args: (nowUs: number) => string[],
    withLines: boolean | 'and readers' = false,
  ): Step => {
    const bySha = random.chance(0.5)
    const more = withLines === 'and readers' ? readers : []
    const all = withLines === false ? keys : [...keys, ...lines, ...more]
    return {
      command: (nowUs) => [
        bySha ? 'EVALSHA' : 'EVAL',
        bySha ? script.sha : script.text,
        String(all.length),
        ...all,
        ...args(nowUs),
      ],
    }
  }
  const publish = random.pick(['', 'publish'])
  switch (random.int(0, 29)) {
    case 0:
    case 1:
    case 2:
      return call(ACQUIRE, (nowUs) => [owner, ttl, number(nowUs), fenceTtl])
    case 3:
    case 4:
      return call(CONFIRM, (nowUs) => [owner, number(nowUs), fenceTtl])
    case 5:
    case 6:
      return call(EXTEND, (nowUs) => [
        fenceTtl,
        random.chance(0.5) ? '0' : number(nowUs),
        String(keys.length / 2),
        owner,
        ttl,
        number(nowUs),
      ])
    case 7:
    case 8:
      return call(RELEASE, (nowUs) => [owner, random.chance(0.5) ? '0' : number(nowUs), fenceTtl, publish, ...channels])
    case 14:
    case 15:
      return call(ACQUIRE, (nowUs) => [owner, ttl, number(nowUs), fenceTtl, 'claim'], true)
    case 16:
    case 17: {
      const old = random.pick(['', '', next])
      const ticket = (nowUs: number): string =>
        String(nowUs + random.pick([-90_000_000, offsetUs, offsetUs, 90_000_000]))
      return call(ACQUIRE, (nowUs) => [owner, ticket(nowUs), '0', old, 'enqueue', publish, ...channels], true)
    }
    case 18:
      return call(RELEASE, () => [owner, '0', fenceTtl, publish, ...channels], true)
    case 19:
      return random.pick([
        plain('RPUSH', random.pick(lines), 'x'),
        plain('ZRANGEBYSCORE', lines[0]!, '(0', '+inf', 'LIMIT', '0', '1'),
        plain('ZADD', lines[0]!, 'XX', 'GT', '7', owner),
        plain('DEL', random.pick(lines)),
      ])
    case 9:
    case 10:
      return call(HAND_OVER, (nowUs) => [owner, next, ttl, number(nowUs), fenceTtl])
    case 11:
      return call(INSPECT, () => [String(lines.length)], random.pick([false, 'and readers']))
    case 20:
    case 21:
    case 22:
    case 23:
      return call(
        ACQUIRE,
        (nowUs) => [reader, readerTtl, number(nowUs), fenceTtl, 'share', publish, ...channels],
        'and readers',
      )
    case 24:
      return call(READER.confirm, (nowUs) => [reader, number(nowUs), fenceTtl], 'and readers')
    case 25:
      return call(
        READER.extend,
        (nowUs) => [fenceTtl, '0', String(lines.length), reader, readerTtl, number(nowUs)],
        'and readers',
      )
    case 26:
    case 27: {
      const pass = random.pick(['', 'pass'])
      const token = (nowUs: number): string => (random.chance(0.5) ? '0' : number(nowUs))
      return call(
        READER.release,
        (nowUs) => [reader, token(nowUs), fenceTtl, publish, pass, ...channels],
        'and readers',
      )
    }
    case 28: {
      const old = random.pick(['', '', `shared:${next}`])
      return call(
        ACQUIRE,
        (nowUs) => [reader, String(nowUs + offsetUs), '0', old, 'enqueue', publish, ...channels],
        'and readers',
      )
    }
    case 29:
      return random.pick([
        call(INSPECT, () => [String(lines.length)], 'and readers'),
        plain('RPUSH', random.pick(readers), 'x'),
        plain('DEL', random.pick(readers)),
        plain('SET', keys[0]!, reader, 'PX', ttl),
      ])
    case 12:
      return random.pick([
        plain('DEL', random.pick(keys)),
        plain('SET', keys[0]!, owner),
        plain('SET', keys[0]!, owner, 'NX', 'PX', ttl),
        plain('PEXPIRE', keys[0]!, ttl),
        plain('RPUSH', random.pick(keys), 'x'),
      ])
    default:
      return random.pick([
        plain('SCRIPT', 'FLUSH'),
        plain('GET', keys[1]!),
        plain('PTTL', keys[0]!),
        plain('EXISTS', keys[1]!),
        plain('SCRIPT', 'EXISTS', ACQUIRE.sha),
      ])
  }
}

interface Answered {
  readonly reply: unknown
  /** The server's clock before and after. */
  readonly fromUs: number
  readonly toUs: number
}

function microseconds([, time]: [Error | null, unknown]): number {
  return Number((time as string[])[0]) * 1e6 + Number((time as string[])[1])
}

async function ask(commands: readonly string[][]): Promise<Answered[]> {
  const pipeline = client.pipeline()
  for (const command of commands)
    pipeline
      .call('TIME')
      .call(command[0]!, ...command.slice(1))
      .call('TIME')
  const results = (await pipeline.exec())!
  return commands.map((_, at) => {
    const [error, reply] = results[3 * at + 1]!
    return { reply: error ?? reply, fromUs: microseconds(results[3 * at]!), toUs: microseconds(results[3 * at + 2]!) }
  })
}

/** Alike but for milliseconds that have gone by. */
function alike(model: Reply, real: unknown): boolean {
  if (model instanceof Error) return real instanceof Error && real.message.split(' ')[0] === model.message.split(' ')[0]
  if (Array.isArray(model))
    return Array.isArray(real) && model.length === real.length && model.every((item, at) => alike(item, real[at]))
  if (typeof model === 'number' && typeof real === 'number' && model > TOLERANCE_MS)
    return Math.abs(model - real) < TOLERANCE_MS
  return model === real
}

/** A grant that is clamped, or a ticket that is refused, tells at which microsecond the script ran. */
function momentsOf({ reply, fromUs, toUs }: Answered): number[] {
  const numbers = [reply].flat(2).map(Number)
  const clamped = numbers.flatMap((number) => [number, number + CLAMP_US, number - CLAMP_US])
  return [fromUs, toUs, ...clamped.filter((us) => us >= fromUs && us <= toUs)]
}

/** One sequence on both; tells the first answer on which they differ. */
async function compareOn(model: Model, seed: string): Promise<{ compared: number; different: string | undefined }> {
  const random = new Seeded(seed)
  await client.flushall()
  model.redis.keys.clear()
  const told: unknown[] = []
  let compared = 0
  let different: string | undefined
  let waiting: string[][] = []
  const compare = async (): Promise<void> => {
    const answers = waiting.length === 0 ? [] : await ask(waiting)
    for (const [at, answer] of answers.entries()) {
      const command = waiting[at]!
      told.push(command.map((part) => (part.includes('\n') ? 'script' : part)).join(' '), answer.reply)
      const before = new Map(model.redis.keys)
      const replies: Reply[] = []
      const fits = momentsOf(answer).some((us) => {
        model.nowUs = us
        model.redis.keys.clear()
        for (const [key, entry] of before) model.redis.keys.set(key, entry)
        const reply = model.redis.run(command)
        replies.push(reply)
        return alike(reply, answer.reply)
      })
      if (!fits) different ??= `${seed}: ${JSON.stringify(told)}, but the model says ${JSON.stringify(replies)}`
      compared++
    }
    waiting = []
  }
  const [start] = await ask([['PING']])
  let clockUs = start!.toUs
  for (const step of Array.from({ length: STEPS }, () => drawStep(random))) {
    if ('command' in step) waiting.push(step.command(clockUs))
    else {
      await compare()
      offsetMs += step.jumpMs
      clockUs += step.jumpMs * 1000
      server.shiftClock(offsetMs)
      // Redis also deletes what has expired when nobody asks, ten times a second. If the next jump went back before that,
      // the key would be there again, or not: so someone asks.
      for (const key of new Set([...KEYS.flat(), ...LINES, ...READERS])) waiting.push(['EXISTS', key])
      await compare()
    }
  }
  await compare()
  return { compared, different }
}

class Model {
  nowUs = 0
  readonly redis = new Redis(() => this.nowUs / 1000)
}

let offsetMs = 0
/** For other sequences than those of every run. */
const BEGINNING = process.env['MODEL_SEED'] ?? 'sequence'

test(
  `a model of Redis answers as Redis does, over ${SEQUENCES} sequences of commands with expiry`,
  { timeout: 600_000 },
  async () => {
    const model = new Model()
    let total = 0
    for (let number = 1; number <= SEQUENCES;) {
      const beganMs = performance.now()
      const { compared, different } = await compareOn(model, `${BEGINNING} ${number}`)
      if (performance.now() - beganMs > MOST_MS) continue
      expect(different).toBeUndefined()
      total += compared
      number++
    }
    expect(total).toBeGreaterThan(6 * SEQUENCES)
  },
)

test(
  'a key is there in its last millisecond, and gone in the next one, in the model as in Redis',
  { timeout: 60_000 },
  async () => {
    const model = new Model()
    const seen = new Set<unknown>()
    // To be seen at its very end, the key must be asked for in that millisecond: if the machine sleeps over it, with another.
    while (!(seen.has(0) && seen.has(-2))) {
      seen.clear()
      await client.set('l1', 'A', 'PX', 15)
      const expiresMs = Number(await client.call('PEXPIRETIME', 'l1'))
      while (!seen.has(-2)) {
        for (const { reply, fromUs, toUs } of await ask(Array.from({ length: 20 }, () => ['PTTL', 'l1']))) {
          if (Math.floor(fromUs / 1000) !== Math.floor(toUs / 1000)) continue
          seen.add(reply)
          model.nowUs = fromUs
          model.redis.keys.set('l1', { value: 'A', expiresMs })
          expect(model.redis.run(['PTTL', 'l1'])).toBe(reply)
        }
      }
    }
  },
)

/** Numbers of grants come from the clock, which goes on. */
function unclocked<T>(reply: T): T {
  if (Array.isArray(reply)) return reply.map(unclocked) as T
  return (typeof reply === 'string' && /^\d{16}$/.test(reply) ? 'number' : reply) as T
}

/** Runs the commands on both, one after the other. */
async function expectAlike(to: Ioredis, model: Redis, commands: readonly (readonly string[])[]): Promise<void> {
  for (const [name, ...args] of commands) {
    const answer: unknown = await to.call(name!, ...args).catch((error: unknown) => error)
    const reply = model.run([name!, ...args])
    const asked = [name, ...args.filter((arg) => !arg.includes('\n'))].join(' ')
    expect(alike(unclocked(reply), unclocked(answer)), `${asked}: ${String(answer)}, the model: ${String(reply)}`).toBe(
      true,
    )
  }
}

async function startModel(): Promise<Redis> {
  await client.flushall()
  const model = new Model()
  model.nowUs = (await ask([['PING']]))[0]!.toUs
  return model.redis
}

test('a model refuses the numbers that Redis refuses', async () => {
  const numbers = ['10.5', '10.0', '1e3', ' 10', '10 ', '+10', '0x10', '010', '-0', '-5', '0', '', '9'.repeat(20)]
  const commands = [...numbers, '60000'].flatMap((number) => [
    ['SET', 'l1', 'A'],
    ['PEXPIRE', 'l1', number],
    ['EXISTS', 'l1'],
    ['PEXPIRE', 'none', number],
    ['SET', 'l1', 'A', 'PX', number],
    ['EVAL', EXTEND.text, '2', 'l1', 'f1', '60000', '0', '1', 'A', number, '5'],
    ['EVAL', ACQUIRE.text, '2', 'l2', 'f2', 'A', number, '5', '60000'],
    ['DEL', 'l1'],
    ['DEL', 'l2'],
  ])
  await expectAlike(client, await startModel(), commands)
})

/** Several steps in one call: two acquires, a confirmation, a hand-over, a release, a reader. */
const TOGETHER = [
  '14 l4 f4 l5 f5 l4 f4 l5 f5 l4 f4 l6 f6 q6 s6',
  'a 2 4 A 60000 5 60000',
  'a 2 4 B 60000 5 60000',
  'c 2 3 A 9000000000000000 60000',
  'h 2 7 B C 60000 5 over 60000 0',
  'r 2 5 A 0 60000 publish c4',
  'a 4 7 shared:A 60000 5 60000 share publish c6',
].flatMap((words) => words.split(' '))

const STEPS_OF_LEASES = [
  ['EVAL', ACQUIRE.text, ...TOGETHER],
  ['EVAL', ACQUIRE.text, '4', 'l1', 'f1', 'l2', 'f2', 'A', '60000', '5', '60000'],
  ['EVAL', ACQUIRE.text, '2', 'l3', 'f3', 'A', '60000', '5', '60000'],
  ['EVAL', CONFIRM.text, '2', 'l1', 'f1', 'A', '6', '60000'],
  ['EVAL', EXTEND.text, '2', 'l1', 'f1', '60000', '0', '1', 'A', '60000', '9'],
  ['EVAL', HAND_OVER.text, '2', 'l3', 'f3', 'A', 'B', '60000', '5', '60000'],
  ['EVAL', RELEASE.text, '4', 'l1', 'f1', 'l2', 'f2', 'A', '9000000000000000', '60000', 'publish', 'c1', 'c2'],
  ['EVAL', RELEASE.text, '2', 'l3', 'f3', 'B', '0', '60000', 'publish', 'c3'],
  ['EVAL', ACQUIRE.text, '4', 'l6', 'f6', 'q6', 's6', 'shared:B', '60000', '5', '60000', 'share', 'publish', 'c6'],
  ['EVAL', READER.extend.text, '4', 'l6', 'f6', 'q6', 's6', '60000', '0', '1', 'shared:B', '70000', '9000000000000000'],
  ['EVAL', READER.confirm.text, '4', 'l6', 'f6', 'q6', 's6', 'shared:A', '9000000000000001', '60000'],
  ['EVAL', READER.release.text, '4', 'l6', 'f6', 'q6', 's6', 'shared:A', '0', '60000', 'publish', 'pass', 'c6'],
  ['EVAL', READER.release.text, '4', 'l6', 'f6', 'q6', 's6', 'shared:B', '0', '60000', 'publish', 'pass', 'c6'],
  ['EXISTS', 'l1'],
  ['EXISTS', 'l2'],
  ['EXISTS', 'l3'],
  ['EXISTS', 'l6'],
]

test('a model without permission to publish does what Redis does', async () => {
  await client.call('ACL', 'SETUSER', 'quiet', 'on', 'nopass', '~*', '+@all', 'resetchannels')
  const quiet = new Ioredis({ port: server.port, username: 'quiet', password: 'any' })
  const model = await startModel()
  model.denied.add('publish')
  await expectAlike(quiet, model, [...STEPS_OF_LEASES, ['PUBLISH', 'c1', 'x']])
  quiet.disconnect()
})

test('a model without memory does what Redis does', async () => {
  const model = await startModel()
  await expectAlike(client, model, STEPS_OF_LEASES.slice(0, 2))
  await client.config('SET', 'maxmemory', '1')
  model.denied.add('memory')
  await expectAlike(client, model, [['SET', 'x', '1'], ...STEPS_OF_LEASES, ['DEL', 'f1']])
  await client.config('SET', 'maxmemory', '0')
})

test('the comparison would notice a model that is wrong', () => {
  expect(alike(['1', 'A', 50_000], ['1', 'A', 50_400])).toBe(true)
  expect(alike(['1', 'A', 50_000], ['1', 'B', 50_000])).toBe(false)
  expect(alike(1, 0)).toBe(false)
  expect(alike(null, '')).toBe(false)
})
