import { expect } from 'vitest'
import type { Engine, LeaseRef } from '../../src/engine.ts'
import { systemRandom } from '../../src/random.ts'
import { until } from '../../harness/until.ts'
import { collect, granted, requestFor } from './requests.ts'

export interface LosesAdoptions {
  /** Of the process that has the lease, and of others. */
  readonly holder: Engine
  /** Of the process that adopts it, whose requests or answers are lost. */
  readonly adopter: Engine
  /** From the next adoption of a lease of so many resources on. */
  readonly lose: (resources: number) => void
  readonly heal: () => void
}

/** An adoption of unknown outcome leaves the lease to a holder that goes on, and the ticket as good as before. */
export async function staysWithItsHolder(it: LosesAdoptions): Promise<void> {
  const { holder, adopter, lose, heal } = it
  for (const count of [1, 2]) {
    const resources = Array.from({ length: count }, () => `moved-${systemRandom.id()}`)
    const lease = await granted(holder, requestFor(resources))
    lose(count)
    await expect(adopter.adopt!(lease, requestFor(resources))).rejects.toMatchObject({ code: 'ENGINE' })
    heal()
    await until(async () => (await ownersOf(holder, resources)).every((owner) => owner === lease.owner), {
      what: 'the lease is its holder’s',
    })
    expect(await holder.extend([lease])).toEqual([{ kind: 'held' }])
    expect(await holder.acquire(requestFor(resources))).toMatchObject({ kind: 'refused' })
    const next = requestFor(resources)
    // Its counter is above the one that the lease knows, for a hand-over within the process, too.
    const within = count === 1 ? undefined : holder.handOver?.(lease, next)
    const outcome = (await (within ?? holder.adopt!(lease, next))) as { kind: string; token: bigint }
    expect(outcome.kind).toBe('granted')
    expect(outcome.token).toBeGreaterThan(lease.token)
    expect(await holder.extend([lease])).toEqual([{ kind: 'lost' }])
    expect(await holder.release({ ...next, token: outcome.token })).toMatchObject({ ours: true })
  }
}

async function ownersOf(engine: Engine, resources: LeaseRef['resources']): Promise<readonly unknown[]> {
  return Promise.all(resources.map(async (resource) => (await collect(engine.inspect(resource)))[0]?.owner))
}
