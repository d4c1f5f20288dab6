import { expect, onTestFinished, test } from 'vitest'
import { memory } from '../../src/engines/memory.ts'
import type { Fenced } from '../../src/guards/index.ts'
import type { Lease } from '../../src/lease.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { freshResource, gate } from './suite.ts'

interface Store<Transaction> {
  readonly transaction: <T>(lease: Fenced, work: (transaction: Transaction) => Promise<T>) => Promise<T>
  readonly write: (transaction: Transaction, resource: string, value: number) => Promise<unknown>
  readonly read: (resource: string) => Promise<number>
}

function newLocks(): Locks {
  const locks = createLocks(memory())
  onTestFinished(() => locks.close())
  return locks
}

/** As a person, or another library, does it. */
async function steal({ engine }: Locks, lease: Lease): Promise<void> {
  await engine.release({ resources: lease.resources, owner: lease.owner, token: lease.token, ttlMs: 30_000 })
  await expect(lease.extend()).rejects.toMatchObject({ reason: 'stolen' })
}

/** What a transaction of a guard does with a lease that ends. */
export function lostLeaseTrials<Transaction>(name: string, store: () => Store<Transaction>): void {
  test(`${name}: is rolled back when the lease is lost while the work runs, although the work succeeds`, async () => {
    const { transaction, write, read } = store()
    const resource = freshResource()
    const ours = newLocks()
    const lease = await ours.acquire(resource)
    const { signal } = lease
    const work = transaction(lease, async (tx) => {
      await write(tx, resource, 1)
      await steal(ours, lease)
      expect(signal.aborted).toBe(true)
    })
    await expect(work).rejects.toMatchObject({ name: 'LeaseLostError', reason: 'stolen', resources: [resource] })
    expect(await read(resource)).toBe(0)
    // Nothing of it is left: the next holder gets in at once.
    const next = await ours.acquire(resource)
    await transaction(next, (tx) => write(tx, resource, 2))
    expect(await read(resource)).toBe(2)
  })

  test(`${name}: does not begin the work of a lease that is over, and the work's own error wins`, async () => {
    const { transaction, write, read } = store()
    const resource = freshResource()
    const ours = newLocks()
    const lease = await ours.acquire(resource)
    const failing = transaction(lease, async (tx) => {
      await write(tx, resource, 1)
      await lease.release()
      throw new Error('out of stock')
    })
    await expect(failing).rejects.toThrow('out of stock')
    let runs = 0
    const late = transaction(lease, async () => void runs++)
    await expect(late).rejects.toMatchObject({ name: 'LeaseLostError', reason: 'released' })
    expect([runs, await read(resource)]).toEqual([0, 0])
  })

  test(`${name}: is committed by a leader whose campaign was ended, because it keeps its lease until then`, async () => {
    const { transaction, write, read } = store()
    const resource = freshResource()
    const campaign = new AbortController()
    const inside = gate()
    const elected = newLocks().elect(resource, { signal: campaign.signal }, (lease) =>
      transaction(lease, async (tx) => {
        inside.open()
        await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
        await write(tx, resource, 1)
      }),
    )
    await inside.opened
    campaign.abort(new Error('enough'))
    await expect(elected).rejects.toThrow('enough')
    expect(await read(resource)).toBe(1)
  })
}
