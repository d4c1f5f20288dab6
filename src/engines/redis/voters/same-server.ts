import { sleep, type Clock } from '../../../clock.ts'
import type { NodeFailure } from '../../../errors.ts'
import type { RedisClient } from '../client.ts'
import { RepeatedVoteError, SameServerError } from '../errors.ts'

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
 * before the first vote, where a node that answers long after a majority, or does not say who it is, is left alone; and again when a node
 * has granted a lease that it had already. So a server has one vote, whichever client leads to it by then.
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
    this.#vetting ??= this.#vet(ttlMs * GRACE).finally(() => {
      this.#vetting = undefined
    })
    return this.#vetting
  }

  async #vet(graceMs: number): Promise<readonly NodeFailure[]> {
    const runs = await this.#ask(graceMs)
    const twins = this.#nodes.flatMap(({ label }, index) => {
      const cause = this.#twinError(runs, index)
      return cause === undefined ? [] : [{ node: label, cause }]
    })
    // Otherwise they are asked again: a client may lead elsewhere by then.
    this.#isVetted = twins.length === 0
    return twins
  }

  /** Why a second grant of one lease is no vote: unless all nodes say who they are, it may be that of another one. */
  readonly whyNoVote = async (index: number): Promise<Error | undefined> => {
    const runs = await this.#ask()
    const twin = this.#twinError(runs, index)
    if (twin !== undefined) this.#isVetted = false
    const isKnown = runs.every((run) => run !== undefined) && isUnique(runs[index]!)
    return twin ?? (isKnown ? undefined : new RepeatedVoteError())
  }

  #twinError(runs: readonly (string | undefined)[], index: number): Error | undefined {
    const run = runs[index]
    if (run === undefined || !isUnique(run)) return undefined
    const other = this.#nodes.find((_, at) => at !== index && runs[at] === run)
    return other === undefined ? undefined : new SameServerError(other.label, run)
  }

  /** In which run each server is. Resolves this long after a majority has said it, or else when all have. */
  #ask(graceMs?: number): Promise<readonly (string | undefined)[]> {
    const runs: (string | undefined)[] = this.#nodes.map(() => undefined)
    const all = new AbortController()
    let answers = 0
    return new Promise((resolve) => {
      for (const [index, { client }] of this.#nodes.entries()) {
        void this.#inTime(client.run(['INFO', 'server']))
          .catch(() => undefined)
          .then((info) => {
            runs[index] = /run_id:(\w+)/.exec(String(info))?.[1]
            const known = runs.filter((run) => run !== undefined).length
            if (++answers === this.#nodes.length) {
              all.abort()
              resolve(runs)
            } else if (graceMs !== undefined && known * 2 > this.#nodes.length) {
              void sleep(this.#clock, graceMs, all.signal).then(() => resolve([...runs]))
            }
          })
      }
    })
  }
}
