import { sleep, type Clock } from '../../../clock.ts'
import type { NodeFailure } from '../../../errors.ts'
import type { RedisClient } from '../client.ts'
import { SameServerError } from '../errors.ts'

/** Redis and Valkey draw 40 digits when they start. What a managed service shows instead may be the same on all servers. */
export function isUnique(run: string): boolean {
  return /^[0-9a-f]{40}$/.test(run)
}

/** How much of the ttl the others have, once a majority has said who it is: a silent node must not cost the first lease all of it. */
const GRACE = 1 / 20

interface Asked {
  readonly label: string
  readonly client: Pick<RedisClient, 'run'>
}

/**
 * Whether each client leads to a server of its own, where every node votes at all times, so that nobody looks at the nodes. Asked
 * once, before the first vote. A node that answers long after a majority, or does not say who it is, is left alone.
 */
export class Identities {
  readonly #nodes: readonly Asked[]
  readonly #clock: Clock
  readonly #inTime: <T>(work: Promise<T>) => Promise<T>
  #vetting: Promise<readonly NodeFailure[]> | undefined
  #isVetted = false

  constructor(nodes: readonly Asked[], clock: Clock, inTime: <T>(work: Promise<T>) => Promise<T>) {
    this.#nodes = nodes
    this.#clock = clock
    this.#inTime = inTime
  }

  /** The nodes that share a server; undefined once it is known that none do. Never rejects. */
  vet(ttlMs: number): Promise<readonly NodeFailure[]> | undefined {
    if (this.#isVetted) return undefined
    this.#vetting ??= this.#ask(ttlMs * GRACE).finally(() => {
      this.#vetting = undefined
    })
    return this.#vetting
  }

  async #ask(graceMs: number): Promise<readonly NodeFailure[]> {
    const runs = new Map<number, string | undefined>()
    const all = new AbortController()
    await new Promise<void>((resolve) => {
      for (const [index, { client }] of this.#nodes.entries()) {
        void this.#inTime(client.run(['INFO', 'server']))
          .catch(() => undefined)
          .then((info) => {
            runs.set(index, /run_id:(\w+)/.exec(String(info))?.[1])
            const known = [...runs.values()].filter((run) => run !== undefined).length
            if (runs.size === this.#nodes.length) all.abort()
            if (runs.size === this.#nodes.length || known * 2 > this.#nodes.length)
              void sleep(this.#clock, graceMs, all.signal).then(resolve)
          })
      }
    })
    const twins = this.#nodes.flatMap(({ label }, index) => {
      const run = runs.get(index)
      if (run === undefined || !isUnique(run)) return []
      const other = this.#nodes.find((_, at) => at !== index && runs.get(at) === run)
      return other === undefined ? [] : [{ node: label, cause: new SameServerError(other.label, run) }]
    })
    // Otherwise they are asked again: a client may lead elsewhere by then.
    this.#isVetted = twins.length === 0
    return twins
  }
}
