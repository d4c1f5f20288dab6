import { ACQUIRE, CONFIRM, EXTEND, RELEASE, type Script } from '../../../src/engines/redis/scripts.ts'
import { Redis, type Reply } from '../../redis.ts'

/** What a node has: of each resource whose lock it is (0: nobody's, else client + 1), and its counter. */
export interface Node {
  readonly owners: readonly number[]
  readonly fences: readonly number[]
}

export type Command =
  | { readonly kind: 'acquire' | 'confirm' | 'extend' | 'release'; readonly client: number; readonly number: number }
  | { readonly kind: 'handOver'; readonly client: number; readonly number: number; readonly from: number }

export interface Step extends Node {
  /** The number that the node votes for; 0 where it does not. */
  readonly vote: number
}

/** Numbers of the exploration are small; the scripts see them as microseconds behind this one. */
const BASE = 1_000_000_000
const TTL = '1000000'

/** The steps of clients that want one resource or several, by the shipped scripts, and remembered. */
export class OneNodeSteps {
  readonly #wants: readonly (readonly number[])[]
  readonly #change: (text: string) => string
  readonly #known = new Map<string, Step>()

  /** `change`: makes a wrong script of a shipped one. */
  constructor(wants: readonly (readonly number[])[], change: (text: string) => string = (text) => text) {
    this.#wants = wants
    this.#change = change
  }

  run(node: Node, command: Command): Step {
    const from = command.kind === 'handOver' ? command.from : ''
    const key = `${node.owners.join()} ${node.fences.join()} ${command.kind}${from} ${command.client} ${command.number}`
    let step = this.#known.get(key)
    if (step === undefined) this.#known.set(key, (step = this.#play(node, command)))
    return step
  }

  #play({ owners, fences }: Node, command: Command): Step {
    const redis = new Redis(() => BASE / 1000)
    for (const [resource, owner] of owners.entries()) {
      if (owner > 0) redis.run(['SET', `L${resource}`, `c${owner - 1}`, 'PX', TTL])
      if (fences[resource]! > 0) redis.run(['SET', `F${resource}`, String(BASE + fences[resource]!)])
    }
    const vote = voteOf(command, this.#call(redis, command))
    return {
      owners: owners.map((_, resource) => {
        const owner = redis.run(['GET', `L${resource}`])
        return owner === null ? 0 : Number(String(owner).slice(1)) + 1
      }),
      fences: fences.map((_, resource) => Math.max(Number(redis.run(['GET', `F${resource}`]) ?? 0) - BASE, 0)),
      vote,
    }
  }

  #call(redis: Redis, command: Command): Reply {
    const { client, number } = command
    const wanted = this.#wants[client]!
    const keys = wanted.flatMap((resource) => [`L${resource}`, `F${resource}`])
    const call = (script: Script, args: readonly string[]): Reply =>
      redis.run(['EVAL', this.#change(script.text), String(keys.length), ...keys, ...args])
    const text = number === 0 ? '0' : String(BASE + number)
    const name = `c${client}`
    switch (command.kind) {
      case 'acquire':
        return call(ACQUIRE, [name, TTL, text, TTL])
      case 'confirm':
        return call(CONFIRM, [name, text, TTL])
      case 'extend':
        return call(EXTEND, [TTL, '0', String(wanted.length), name, TTL, text])
      case 'release':
        return call(RELEASE, [name, text, TTL, '', ...wanted.map((resource) => `C${resource}`)])
      case 'handOver':
        return call(ACQUIRE, [`c${command.from}`, name, TTL, text, 'over', TTL, '0'])
    }
  }
}

function voteOf({ kind, number }: Command, reply: Reply): number {
  if (reply instanceof Error) throw reply
  if (kind === 'extend' || kind === 'release') return 0
  const fields: readonly Reply[] = typeof reply === 'object' && reply !== null ? reply : []
  if (kind === 'confirm') return fields[0] === 1 ? number : 0
  return fields.length > 0 ? 0 : Number(reply) - BASE
}
