import type { NodeFailure } from '../../../errors.ts'
import type { RedisClient } from '../client.ts'
import { SameServerError } from '../errors.ts'

/** Redis and Valkey draw 40 digits when they start. What a managed service shows instead may be the same on all servers. */
export function isUnique(run: string): boolean {
  return /^[0-9a-f]{40}$/.test(run)
}

interface Asked {
  readonly label: string
  readonly client: Pick<RedisClient, 'run'>
}

/**
 * Whether each client leads to a server of its own, where every node votes at all times, so that nobody looks at the nodes. Asked
 * once, before the first vote. A node that does not answer in time, or does not say who it is, is left alone.
 */
export class Identities {
  readonly #nodes: readonly Asked[]
  readonly #inTime: <T>(work: Promise<T>) => Promise<T>
  #vetting: Promise<readonly NodeFailure[]> | undefined
  #isVetted = false

  constructor(nodes: readonly Asked[], inTime: <T>(work: Promise<T>) => Promise<T>) {
    this.#nodes = nodes
    this.#inTime = inTime
  }

  /** The nodes that share a server; undefined once it is known that none do. Never rejects. */
  vet(): Promise<readonly NodeFailure[]> | undefined {
    if (this.#isVetted) return undefined
    this.#vetting ??= this.#ask().finally(() => {
      this.#vetting = undefined
    })
    return this.#vetting
  }

  async #ask(): Promise<readonly NodeFailure[]> {
    const runs = await Promise.all(
      this.#nodes.map(async ({ client }) => {
        const info = await this.#inTime(client.run(['INFO', 'server'])).catch(() => undefined)
        return /run_id:(\w+)/.exec(String(info))?.[1]
      }),
    )
    const twins = this.#nodes.flatMap(({ label }, index) => {
      const run = runs[index]
      if (run === undefined || !isUnique(run)) return []
      const other = this.#nodes.find((_, at) => at !== index && runs[at] === run)
      return other === undefined ? [] : [{ node: label, cause: new SameServerError(other.label, run) }]
    })
    // Otherwise they are asked again: a client may lead elsewhere by then.
    this.#isVetted = twins.length === 0
    return twins
  }
}
