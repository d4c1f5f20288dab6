import { Redis as Ioredis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  acquireScript,
  CLAMP_US,
  CONFIRM,
  EXTEND,
  HAND_OVER,
  INSPECT,
  RELEASE,
} from '../../src/engines/redis/scripts.ts'
import { Seeded } from '../../sim/random.ts'
import { Redis, type Reply } from '../../sim/redis.ts'
import { startRedis, type RedisServer } from '../support/servers/redis.ts'

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

const ACQUIRE = acquireScript(0)
const OWNERS = ['A', 'B', 'C']
const KEYS = [
  ['l1', 'f1'],
  ['l1', 'f1', 'l2', 'f2'],
  ['l2', 'f2'],
]

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
  const call = (script: { text: string; sha: string }, args: (nowUs: number) => string[]): Step => {
    const bySha = random.chance(0.5)
    return {
      command: (nowUs) => [
        bySha ? 'EVALSHA' : 'EVAL',
        bySha ? script.sha : script.text,
        String(keys.length),
        ...keys,
        ...args(nowUs),
      ],
    }
  }
  switch (random.int(0, 13)) {
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
      return call(RELEASE, (nowUs) => [
        owner,
        random.chance(0.5) ? '0' : number(nowUs),
        fenceTtl,
        random.pick(['', 'publish']),
        'c1',
        'c2',
      ])
    case 9:
    case 10:
      return call(HAND_OVER, (nowUs) => [owner, next, ttl, number(nowUs), fenceTtl])
    case 11:
      return call(INSPECT, () => [])
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

/** A grant that is clamped tells at which microsecond the script ran. */
function momentsOf({ reply, fromUs, toUs }: Answered): number[] {
  const numbers = [reply].flat(2).map(Number)
  const clamped = numbers.flatMap((number) => [number + CLAMP_US, number - CLAMP_US])
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
      for (const key of new Set(KEYS.flat())) waiting.push(['EXISTS', key])
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

test('the comparison would notice a model that is wrong', () => {
  expect(alike(['1', 'A', 50_000], ['1', 'A', 50_400])).toBe(true)
  expect(alike(['1', 'A', 50_000], ['1', 'B', 50_000])).toBe(false)
  expect(alike(1, 0)).toBe(false)
  expect(alike(null, '')).toBe(false)
})
