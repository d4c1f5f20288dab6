import { OFFERED, PLACE_MS } from '../../../src/engines/redis/line-lua.ts'
import { SHARED } from '../../../src/engines/redis/readers-lua.ts'
import {
  ACQUIRE,
  CONFIRM,
  EXTEND,
  HAND_OVER,
  READER,
  RELEASE,
  type Script,
} from '../../../src/engines/redis/scripts.ts'
import { Redis, type Reply } from '../../redis.ts'
import { SortedSet } from '../../sorted-set.ts'

/** What a node has: whose the lock is (see `LineSteps`), its counter, and the sets of owners in its line and among its readers. */
export interface LineNode {
  readonly lock: number
  readonly fence: number
  readonly line: number
  readonly readers: number
}

/** The lock of readers; and one that ends before the last of them does, which must not be. */
export function sharedLock(owners: number): number {
  return 2 * owners + 1
}

export function isTooShort(lock: number, owners: number): boolean {
  return lock === 2 * owners + 2
}

export function isShared(lock: number, owners: number): boolean {
  return lock > 2 * owners
}

export interface LineStep extends LineNode {
  readonly answer: 'granted' | 'refused' | 'offered' | 'behind' | 'confirmed' | 'higher' | 'no' | 'done'
  readonly number: number
}

export type LineCommand = (typeof COMMANDS)[number]

/** Numbers of the exploration are small; the scripts see them as microseconds behind this one. */
const BASE = 1_000_000_000
const NOW_MS = BASE / 1000
const TTL = '1000000'
/** Of the one that holds the lock at the beginning. */
const FIRST_TOKEN = String(BASE + 1)
/** Of a reader that comes, or is renewed, while others are there: it lasts longer than they do. */
const LONGER = '2000000'
const COMMANDS = [
  'acquire',
  'claim',
  'enqueue',
  'confirm',
  'extend',
  'release',
  'handOver',
  'adopt',
  'giveBack',
] as const

/**
 * A step on a node, by the shipped script itself, and remembered: there are few different ones. Owners are numbers from 1 on;
 * a lock is 0 when it is free, an owner's number when it is held, and that number plus `owners` when it is offered; for readers, see
 * `sharedLock`.
 */
export class LineSteps {
  readonly #owners: number
  readonly #ticketOf: (owner: number) => number
  readonly #isReader: (owner: number) => boolean
  readonly #known = new Map<string, LineStep>()

  /** `ticketOf`: the place of an owner in the order of the waits, from 1 on. */
  constructor(owners: number, ticketOf: (owner: number) => number, isReader: (owner: number) => boolean) {
    this.#owners = owners
    this.#ticketOf = ticketOf
    this.#isReader = isReader
  }

  /** `number`: the token to confirm or release with, or the owner whose place or lock is taken over, or given back to. */
  run(command: LineCommand, node: LineNode, owner: number, number = 0): LineStep {
    const words = [COMMANDS.indexOf(command), node.lock, node.fence, node.line, node.readers, owner, number]
    const key = String.fromCharCode(...words)
    let step = this.#known.get(key)
    if (step === undefined) {
      step = this.#play(command, node, owner, number)
      this.#known.set(key, step)
    }
    return step
  }

  #play(command: LineCommand, node: LineNode, owner: number, number: number): LineStep {
    const redis = new Redis(() => NOW_MS)
    const readers = this.#named(node.readers)
    if (isShared(node.lock, this.#owners)) {
      const ttl = isTooShort(node.lock, this.#owners) ? '1' : TTL
      redis.run(['SET', 'L', readers.toSorted().at(-1) ?? `${SHARED}nobody`, 'PX', ttl])
    } else if (node.lock > 0) redis.run(['SET', 'L', this.#lockText(node.lock), 'PX', TTL])
    if (node.fence > 0) redis.run(['SET', 'F', String(BASE + node.fence)])
    for (const name of readers) redis.run(['ZADD', 'S', String(NOW_MS + Number(TTL)), name])
    for (let one = 1; one <= this.#owners; one++) {
      if (((node.line >> one) & 1) === 0) continue
      const until = String(-BASE - PLACE_MS * 1000)
      redis.run(['ZADD', 'Q', String(BASE + this.#ticketOf(one)), this.#name(one), until, `!${this.#name(one)}`])
    }
    const reply = this.#call(redis, command, owner, number)
    const after = {
      lock: this.#lockOf(redis),
      fence: small(redis.run(['GET', 'F'])),
      line: setOf(redis, 'Q'),
      readers: setOf(redis, 'S'),
    }
    return { ...after, ...answerOf(command, reply) }
  }

  /** The names of a set of owners. */
  #named(set: number): string[] {
    return Array.from({ length: this.#owners }, (_, index) => index + 1)
      .filter((owner) => ((set >> owner) & 1) === 1)
      .map((owner) => this.#name(owner))
  }

  #name(owner: number): string {
    return this.#isReader(owner) ? `${SHARED}o${owner}` : `o${owner}`
  }

  #lockOf(redis: Redis): number {
    const text = redis.run(['GET', 'L'])
    if (text === null) return 0
    if (!String(text).startsWith(SHARED)) return this.#lockNumber(String(text))
    const last = redis.get('S')?.value
    const endsMs = last instanceof SortedSet ? Number(last.last()[1] ?? 0) : 0
    return sharedLock(this.#owners) + (redis.get('L')!.expiresMs < endsMs ? 1 : 0)
  }

  #call(redis: Redis, command: LineCommand, owner: number, number: number): Reply {
    const text = number === 0 ? '0' : String(BASE + number)
    const call = (script: Script, keys: readonly string[], ...args: string[]): Reply =>
      redis.run(['EVAL', script.text, String(keys.length), ...keys, ...args])
    const pair = ['L', 'F']
    const line = ['L', 'F', 'Q']
    const all = ['L', 'F', 'Q', 'S']
    const name = this.#name(owner)
    const isReader = this.#isReader(owner)
    // All propose the same, so that numbers are plain counters.
    const proposal = String(BASE + 1)
    switch (command) {
      case 'acquire':
      case 'claim':
        if (isReader) return call(ACQUIRE, all, name, LONGER, proposal, TTL, 'share', '', 'C')
        if (command === 'acquire') return call(ACQUIRE, pair, name, TTL, proposal, TTL)
        return call(ACQUIRE, line, name, TTL, proposal, TTL, 'claim')
      case 'enqueue': {
        const ticket = this.#ticketOf(owner)
        const place = [name, String(BASE + ticket), String(-ticket), number === 0 ? '' : this.#name(number)]
        return call(ACQUIRE, isReader ? all : line, ...place, 'enqueue', '', 'C')
      }
      case 'confirm':
        return isReader ? call(READER.confirm, all, name, text, TTL) : call(CONFIRM, pair, name, text, TTL)
      case 'extend':
        return isReader
          ? call(READER.extend, all, TTL, '0', '1', name, LONGER, text)
          : call(EXTEND, pair, TTL, '0', '1', name, TTL, text)
      case 'handOver':
        return call(HAND_OVER, pair, this.#name(number), name, TTL, proposal, 'over', TTL, FIRST_TOKEN)
      case 'giveBack':
        return call(HAND_OVER, pair, name, this.#name(number), TTL, proposal, 'over', TTL, FIRST_TOKEN)
      case 'adopt':
        return call(ACQUIRE, pair, this.#name(number), name, TTL, proposal, 'over', TTL, '0')
      case 'release':
        return isReader
          ? call(READER.release, all, name, text, TTL, '', 'pass', 'C')
          : call(RELEASE, line, name, text, TTL, '', 'C')
    }
  }

  #lockText(lock: number): string {
    return lock > this.#owners ? OFFERED + this.#name(lock - this.#owners) : this.#name(lock)
  }

  #lockNumber(text: string): number {
    return numberIn(text) + (text.startsWith(OFFERED) ? this.#owners : 0)
  }
}

function numberIn(name: string): number {
  return Number(/\d+$/.exec(name)![0])
}

function small(value: Reply | undefined): number {
  const number = value === null || value === undefined ? 0 : Number(value) - BASE
  if (!(number >= 0 && number < 16)) throw new Error(`a number outside of the exploration: ${String(value)}`)
  return number
}

function setOf(redis: Redis, key: string): number {
  const value = redis.get(key)?.value
  if (!(value instanceof SortedSet)) return 0
  return value
    .entries()
    .filter(([member]) => !member.startsWith('!'))
    .reduce((set, [member]) => set | (1 << numberIn(member)), 0)
}

function answerOf(command: LineCommand, reply: Reply): Pick<LineStep, 'answer' | 'number'> {
  if (reply instanceof Error) throw reply
  const fields: readonly Reply[] = typeof reply === 'object' && reply !== null ? reply : []
  switch (command) {
    case 'acquire':
    case 'claim':
    case 'handOver':
    case 'adopt':
      return fields.length > 0 ? { answer: 'refused', number: 0 } : { answer: 'granted', number: small(reply) }
    case 'enqueue':
      if (fields[0] !== 'offered' && fields[0] !== 'behind') throw new Error(`enqueue: ${JSON.stringify(reply)}`)
      return { answer: fields[0], number: 0 }
    case 'confirm': {
      const answer = fields[0] === 1 ? 'confirmed' : fields[0] === 2 ? 'higher' : 'no'
      return { answer, number: answer === 'no' ? 0 : small(fields[1]) }
    }
    default:
      return { answer: 'done', number: 0 }
  }
}
