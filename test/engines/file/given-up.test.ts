import { describe, expect, test } from 'vitest'
import { machineClock } from '../../../src/clock.ts'
import { loadSqlite } from '../../../src/engines/file/client.ts'
import { file } from '../../../src/engines/file/index.ts'
import { thisMachine } from '../../../src/engines/file/machine.ts'
import { createLocks } from '../../../src/locks.ts'
import { until } from '../../../harness/until.ts'
import { keepsItsPlace } from '../given-up.ts'
import { leases, Place } from './setup.ts'

const never = new AbortController().signal

async function queued(place: Place, waiters: number): Promise<void> {
  await until(async () => (await leases(file(place.path), 'x'))[0]?.waiters === waiters, { what: `${waiters} waiters` })
}

describe.concurrent('a place in the queue', () => {
  test('counts from the wait of its caller, also if one before it has given up', async () => {
    await using place = new Place()
    await keepsItsPlace(() => file(place.path), 'x')
  })

  test('does not count from before the last turn of its process', async () => {
    await using place = new Place()
    await using holder = createLocks(file(place.path), { wait: '60s' })
    await using first = createLocks(file(place.path), { wait: '60s' })
    await using second = createLocks(file(place.path), { wait: '60s' })
    const held = await holder.acquire('x')
    const order: string[] = []
    const all = ['first', 'first again'].map((name) => first.using('x', () => order.push(name)))
    await queued(place, 1)
    all.push(second.using('x', () => order.push('second')))
    await queued(place, 2)
    await held.release()
    await Promise.all(all)
    expect(order).toEqual(['first', 'second', 'first again'])
  })

  test('that was lost, because its process was stopped, is not given back', async () => {
    await using place = new Place()
    const [holder, stopped, second, third] = await Promise.all(Array.from({ length: 4 }, () => place.puppet()))
    const x = { resource: 'x', wait: '50s' }
    await holder!.call('acquire', x)
    const last = stopped!.call('acquire', x)
    await queued(place, 1)
    const passing = second!.call('acquire', x)
    await queued(place, 2)
    await stopped!.worker.pause()
    await holder!.call('release', x)
    await passing
    const next = third!.call('acquire', x)
    await queued(place, 1)
    await stopped!.worker.resume()
    await queued(place, 2)
    await second!.call('release', x)
    const { token } = await next
    await third!.call('release', x)
    expect(BigInt((await last)['token'] as string)).toBeGreaterThan(BigInt(token as string))
  })

  test('is called again after one that came before it', async () => {
    await using place = new Place()
    const engine = file(place.path)
    await engine.init!()
    // One that lives, and was called long ago.
    const { boot, self, offsetMs } = thisMachine()
    const nowMs = machineClock.machineMs() - offsetMs
    const connection = (await loadSqlite()).connect(place.path)
    connection
      .prepare(`INSERT INTO ticket VALUES (?, 'idle', 0, ?, ?, 0, ?)`)
      .run(Math.floor(nowMs * 1000), boot, nowMs, self)
    connection.exec(`INSERT INTO queue SELECT 'x', number FROM ticket`)
    connection.close()
    const request = { resources: ['x'], owner: 'earlier', ttlMs: 30_000 }
    const { token } = await engine.enqueue!({ ...request, waitedMs: 60_000 }, never)
    await engine.release({ ...request, token })
    expect(await engine.acquire({ ...request, owner: 'late' })).toMatchObject({ kind: 'refused', reason: 'held' })
    await engine.close()
  })
})
