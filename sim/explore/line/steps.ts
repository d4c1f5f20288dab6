import { OFFERED, PLACE_MS } from '../../../src/engines/redis/line-lua.ts'
import { ACQUIRE, CONFIRM, EXTEND, RELEASE, type Script } from '../../../src/engines/redis/scripts.ts'
import { Redis, type Reply } from '../../redis.ts'
import { SortedSet } from '../../sorted-set.ts'

/** What a node has: whose the lock is (see `LineSteps`), its counter, and the set of owners in its line. */
export interface LineNode {
  readonly lock: number
  readonly fence: number
  readonly line: number
}

export interface LineStep extends LineNode {
  readonly answer: 'granted' | 'refused' | 'offered' | 'behind' | 'confirmed' | 'higher' | 'no' | 'done'
  readonly number: number
}

export type LineCommand = 'acquire' | 'claim' | 'enqueue' | 'confirm' | 'extend' | 'release'

/** Numbers of the exploration are small; the scripts see them as microseconds behind this one. */
const BASE = 1_000_000_000
const TTL = '1000000'
const COMMANDS: readonly LineCommand[] = ['acquire', 'claim', 'enqueue', 'confirm', 'extend', 'release']

/**
 * A step on a node, by the shipped script itself, and remembered: there are few different ones. Owners are numbers from 1 on;
 * a lock is 0 when it is free, an owner's number when it is held, and that number plus `owners` when it is offered.
 */
export class LineSteps {
  readonly #owners: number
  readonly #ticketOf: (owner: number) => number
  readonly #known = new Map<string, LineStep>()

  /** `ticketOf`: the place of an owner in the order of the waits, from 1 on. */
  constructor(owners: number, ticketOf: (owner: number) => number) {
    this.#owners = owners
    this.#ticketOf = ticketOf
  }

  /** `number`: the token to confirm or release with, or the owner whose place is taken over. */
  run(command: LineCommand, node: LineNode, owner: number, number = 0): LineStep {
    const words = [COMMANDS.indexOf(command), node.lock, node.fence, node.line, owner, number]
    const key = String.fromCharCode(...words)
    let step = this.#known.get(key)
    if (step === undefined) {
      step = this.#play(command, node, owner, number)
      this.#known.set(key, step)
    }
    return step
  }

  #play(command: LineCommand, { lock, fence, line }: LineNode, owner: number, number: number): LineStep {
    const redis = new Redis(() => BASE / 1000)
    if (lock > 0) redis.run(['SET', 'L', this.#lockText(lock), 'PX', TTL])
    if (fence > 0) redis.run(['SET', 'F', String(BASE + fence)])
    for (let one = 1; one <= this.#owners; one++) {
      if (((line >> one) & 1) === 0) continue
      const until = String(-BASE - PLACE_MS * 1000)
      redis.run(['ZADD', 'Q', String(BASE + this.#ticketOf(one)), name(one), until, `!${name(one)}`])
    }
    const reply = this.#call(redis, command, owner, number)
    const locked = redis.run(['GET', 'L'])
    const after = {
      lock: locked === null ? 0 : this.#lockNumber(String(locked)),
      fence: small(redis.run(['GET', 'F'])),
      line: lineOf(redis),
    }
    return { ...after, ...answerOf(command, reply) }
  }

  #call(redis: Redis, command: LineCommand, owner: number, number: number): Reply {
    const text = number === 0 ? '0' : String(BASE + number)
    const call = (script: Script, keys: readonly string[], ...args: string[]): Reply =>
      redis.run(['EVAL', script.text, String(keys.length), ...keys, ...args])
    const pair = ['L', 'F']
    const all = ['L', 'F', 'Q']
    // All propose the same, so that numbers are plain counters.
    const grant = [name(owner), TTL, String(BASE + 1), TTL]
    switch (command) {
      case 'acquire':
        return call(ACQUIRE, pair, ...grant)
      case 'claim':
        return call(ACQUIRE, all, ...grant, 'claim')
      case 'enqueue': {
        const ticket = this.#ticketOf(owner)
        const place = [name(owner), String(BASE + ticket), String(-ticket), number === 0 ? '' : name(number)]
        return call(ACQUIRE, all, ...place, 'enqueue', '', 'C')
      }
      case 'confirm':
        return call(CONFIRM, pair, name(owner), text, TTL)
      case 'extend':
        return call(EXTEND, pair, TTL, '0', '1', name(owner), TTL, text)
      case 'release':
        return call(RELEASE, all, name(owner), text, TTL, '', 'C')
    }
  }

  #lockText(lock: number): string {
    return lock > this.#owners ? OFFERED + name(lock - this.#owners) : name(lock)
  }

  #lockNumber(text: string): number {
    return text.startsWith(OFFERED) ? this.#owners + Number(text.slice(OFFERED.length + 1)) : Number(text.slice(1))
  }
}

function name(owner: number): string {
  return `o${owner}`
}

function small(value: Reply | undefined): number {
  const number = value === null || value === undefined ? 0 : Number(value) - BASE
  if (!(number >= 0 && number < 16)) throw new Error(`a number outside of the exploration: ${String(value)}`)
  return number
}

function lineOf(redis: Redis): number {
  const value = redis.get('Q')?.value
  if (!(value instanceof SortedSet)) return 0
  return value
    .entries()
    .filter(([member]) => !member.startsWith('!'))
    .reduce((set, [member]) => set | (1 << Number(member.slice(1))), 0)
}

function answerOf(command: LineCommand, reply: Reply): Pick<LineStep, 'answer' | 'number'> {
  if (reply instanceof Error) throw reply
  const fields: readonly Reply[] = typeof reply === 'object' && reply !== null ? reply : []
  switch (command) {
    case 'acquire':
    case 'claim':
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
