import { setTimeout as sleep } from 'node:timers/promises'
import { EngineError, WaitTimeoutError } from '../../src/errors.ts'
import type { Lease } from '../../src/lease.ts'
import type { Locks } from '../../src/locks.ts'
import { until } from '../../harness/until.ts'

/** Clients that take turns on one resource for as long as an operator works on the servers. */
export class Traffic implements AsyncDisposable {
  /** What must never be: a grant while another lease is held, a token that is not above the last one. */
  readonly broken: string[] = []
  grants = 0
  #last = 0n
  #inside: Lease | undefined
  readonly #clients = new Map<Locks, { stopped: boolean; loop: Promise<void> }>()

  add(locks: Locks): void {
    const client = { stopped: false, loop: Promise.resolve() }
    this.#clients.set(locks, client)
    client.loop = this.#run(locks, client)
  }

  /** Ends one client, as a deployment does: it finishes its section first. */
  async remove(locks: Locks): Promise<void> {
    const client = this.#clients.get(locks)!
    client.stopped = true
    await client.loop
    this.#clients.delete(locks)
  }

  /** Resolves when leases are granted again, or still. */
  async goesOn(): Promise<void> {
    const from = this.grants
    await until(() => this.grants >= from + 4, { what: 'leases are granted', withinMs: 40_000 })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const locks of this.#clients.keys()) await this.remove(locks)
  }

  async #run(locks: Locks, client: { readonly stopped: boolean }): Promise<void> {
    while (!client.stopped) {
      try {
        await locks.using('order', { wait: '5s', ttl: '5s' }, (lease) => this.#section(lease))
      } catch (error) {
        // A caller has to expect these while servers are away.
        if (!(error instanceof EngineError) && !(error instanceof WaitTimeoutError)) this.broken.push(String(error))
        await sleep(20)
      }
    }
  }

  async #section(lease: Lease): Promise<void> {
    if (this.#inside?.held === true) this.broken.push(`two holders: ${this.#inside.token} and ${lease.token}`)
    if (lease.token <= this.#last) this.broken.push(`token ${lease.token} after ${this.#last}`)
    this.#inside = lease
    this.#last = lease.token
    this.grants++
    await sleep(25)
    if (this.#inside === lease) this.#inside = undefined
  }
}
