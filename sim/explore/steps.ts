import { ACQUIRE, CONFIRM, EXTEND, HAND_OVER, RELEASE, type Script } from '../../src/engines/redis/scripts.ts'
import { Redis, type Reply } from '../redis.ts'

/** What a node has for the one resource: whose lock it is (0: nobody's, else client + 1), and its counter. */
export interface NodeState {
  readonly owner: number
  readonly fence: number
}

export type Answer = 'granted' | 'refused' | 'confirmed' | 'higher' | 'no' | 'done'

export interface Step {
  readonly owner: number
  readonly fence: number
  readonly answer: Answer
  /** The number it is about: granted, confirmed, or the higher one. */
  readonly number: number
}

/** Numbers of the exploration are small; the scripts see them as microseconds behind this one. */
const BASE = 1_000_000_000
const TTL = '1000000'

/**
 * A step of the protocol on a node, by the shipped script itself, and remembered: there are few different ones. With `quick`
 * the node's clock stands in the second of the proposals, so that the script's short way is taken, otherwise the long one.
 */
export class Steps {
  readonly #known = new Map<number, Step>()
  readonly #quick: boolean
  readonly #acquire = ACQUIRE

  constructor(quick: boolean) {
    this.#quick = quick
  }

  acquire(node: NodeState, client: number, proposal: number): Step {
    return this.#step(0, node, client, proposal)
  }

  confirm(node: NodeState, client: number, token: number): Step {
    return this.#step(1, node, client, token)
  }

  release(node: NodeState, client: number, token: number): Step {
    return this.#step(2, node, client, token)
  }

  extend(node: NodeState, client: number, token: number): Step {
    return this.#step(3, node, client, token)
  }

  /** From client 0, by the script that adopts. */
  handOver(node: NodeState, client: number, proposal: number): Step {
    return this.#step(4, node, client, proposal)
  }

  /** What a hand-over to this client has taken becomes client 0's again. */
  giveBack(node: NodeState, client: number, proposal: number): Step {
    return this.#step(5, node, client, proposal)
  }

  #step(kind: number, node: NodeState, client: number, number: number): Step {
    const key = (((kind * 8 + node.owner) * 32 + node.fence) * 8 + client) * 32 + number
    let step = this.#known.get(key)
    if (step === undefined) {
      step = this.#run(kind, node, client, number)
      this.#known.set(key, step)
    }
    return step
  }

  #run(kind: number, node: NodeState, client: number, number: number): Step {
    const nowMs = BASE / 1000 + (this.#quick ? 0 : -1000)
    const redis = new Redis(() => nowMs)
    if (node.owner > 0) redis.run(['SET', 'L', name(node.owner - 1), 'PX', TTL])
    if (node.fence > 0) redis.run(['SET', 'F', String(BASE + node.fence)])
    const reply = this.#call(redis, kind, client, number)
    const owner = redis.run(['GET', 'L'])
    const fence = redis.run(['GET', 'F'])
    const state = { owner: owner === null ? 0 : Number(String(owner).slice(1)) + 1, fence: small(fence) }
    return { ...state, ...answerOf(kind, reply) }
  }

  #call(redis: Redis, kind: number, client: number, number: number): Reply {
    const text = String(BASE + number)
    const call = (script: Script, args: string[]): Reply => redis.run(['EVAL', script.text, '2', 'L', 'F', ...args])
    switch (kind) {
      case 0:
        return call(this.#acquire, [name(client), TTL, text, TTL])
      case 1:
        return call(CONFIRM, [name(client), text, TTL])
      case 2:
        return call(RELEASE, [name(client), number === 0 ? '0' : text, TTL, '', 'C'])
      case 4:
        return call(this.#acquire, [name(0), name(client), TTL, text, 'over', TTL, '0'])
      case 5:
        return call(HAND_OVER, [name(client), name(0), TTL, text, 'over', TTL, '0'])
      default:
        return call(EXTEND, [TTL, '0', '1', name(client), TTL, text])
    }
  }
}

function name(client: number): string {
  return `c${client}`
}

function small(value: Reply | readonly string[] | undefined): number {
  if (value === null || value === undefined) return 0
  const number = Number(value) - BASE
  if (!(number >= -BASE && number < 32)) throw new Error(`a number outside of the exploration: ${String(value)}`)
  return Math.max(number, 0)
}

function answerOf(kind: number, reply: Reply): { answer: Answer; number: number } {
  if (reply instanceof Error) throw reply
  if (kind === 2 || kind === 3) return { answer: 'done', number: 0 }
  const fields: readonly Reply[] = typeof reply === 'object' && reply !== null ? reply : []
  if (kind !== 1) {
    return fields.length > 0
      ? { answer: 'refused', number: small(fields[0]) }
      : { answer: 'granted', number: small(reply) }
  }
  const answer = fields[0] === 1 ? 'confirmed' : fields[0] === 2 ? 'higher' : 'no'
  return { answer, number: answer === 'no' ? 0 : small(fields[1]) }
}
