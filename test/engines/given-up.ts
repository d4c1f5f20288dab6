import { expect } from 'vitest'
import type { Engine } from '../../src/engine.ts'
import type { LockEvent } from '../../src/events.ts'
import { createLocks, type Locks, type LocksOptions } from '../../src/index.ts'
import { until } from '../../harness/until.ts'
import { queueLength } from './readers-and-writers.ts'
import { granted, requestFor } from './requests.ts'

type Open = () => Engine

const never = new AbortController().signal

function locksOn(open: Open, options: LocksOptions = {}): Locks {
  return createLocks(open(), { ttl: '20s', wait: '60s', ...options })
}

function waits(events: readonly LockEvent[]): number {
  return events.filter(({ type }) => type === 'waiting').length
}

/** Callers of one process give up one after the other: the last of them gets in before a process that came later. */
export async function keepsItsPlace(open: Open, resource: string): Promise<void> {
  const events: LockEvent[] = []
  await using holder = locksOn(open)
  await using first = locksOn(open, { observe: (event) => events.push(event) })
  await using second = locksOn(open)
  const held = await holder.acquire(resource)
  const order: string[] = []
  const served = (name: string, locks: Locks): Promise<unknown> => locks.using(resource, () => order.push(name))
  const leaving = [new AbortController(), new AbortController()]
  const gone = leaving.map(({ signal }) => first.acquire(resource, { signal }).catch((reason: unknown) => reason))
  const all = [served('first', first)]
  await until(async () => (await queueLength(holder.engine, resource)) === 2, {
    what: 'the first process in the queue',
  })
  all.push(served('second', second))
  await until(async () => (await queueLength(holder.engine, resource)) === 3, { what: 'both in the queue' })
  for (const [index, controller] of leaving.entries()) {
    const before = waits(events)
    controller.abort(`enough ${index}`)
    expect(await gone[index]).toBe(`enough ${index}`)
    await until(() => waits(events) > before, { what: 'the next caller waits' })
  }
  await held.release()
  await Promise.all(all)
  expect(order).toEqual(['first', 'second'])
}

/** The next caller of the process wants more than the one that gave up. */
export async function givesUpItsPlace(open: Open, resource: string): Promise<void> {
  const events: LockEvent[] = []
  await using holder = locksOn(open)
  await using first = locksOn(open, { observe: (event) => events.push(event) })
  await using second = locksOn(open)
  const held = await holder.acquire(resource)
  const leaving = new AbortController()
  const gone = first.acquire(resource, { signal: leaving.signal }).catch((reason: unknown) => reason)
  await until(async () => (await queueLength(holder.engine, resource)) === 2, {
    what: 'the first process in the queue',
  })
  const order: string[] = []
  const more = first.using([resource, `${resource}-2`], () => order.push('first'))
  const other = second.using(resource, () => order.push('second'))
  await until(async () => (await queueLength(holder.engine, resource)) === 3, { what: 'both in the queue' })
  const before = waits(events)
  leaving.abort('enough')
  expect(await gone).toBe('enough')
  // It waits when the place before it is gone.
  await until(() => waits(events) > before, { what: 'the next caller waits' })
  await until(async () => (await queueLength(holder.engine, resource)) === 3, { what: 'the next caller in the queue' })
  await held.release()
  await Promise.all([more, other])
  expect(order).toEqual(['second', 'first'])
}

/** A place that was kept for someone who does not come. */
export async function dropsItsPlace(open: Open, resource: string): Promise<void> {
  const engine = open()
  const other = open()
  try {
    const request = { ...requestFor(resource), shared: true, hasHeir: () => true }
    const held = await granted(other, requestFor(resource))
    const leave = async (): Promise<void> => {
      const leaving = new AbortController()
      const place = engine.enqueue!({ ...request, owner: requestFor('x').owner }, leaving.signal)
      await until(async () => (await queueLength(other, resource)) === 2, { what: 'a place' })
      leaving.abort('enough')
      await expect(place).rejects.toBe('enough')
      expect(await queueLength(other, resource)).toBe(2)
    }
    await leave()
    await until(async () => (await queueLength(other, resource)) === 1, { what: 'nobody has come' })
    await leave()
    // Whoever comes is let in beside it, because it is shared.
    await other.release(held)
    const lease = await granted(engine, request)
    await until(async () => (await queueLength(other, resource)) === 1, { what: 'the place is dropped' })
    const writer = requestFor(resource)
    const waiting = other.enqueue!(writer, never)
    await until(async () => (await queueLength(other, resource)) === 2, { what: 'a writer that waits' })
    await engine.release(lease)
    await other.release({ ...writer, token: (await waiting).token })
    // And with the engine.
    const last = await granted(other, requestFor(resource))
    await leave()
    await engine.close()
    await until(async () => (await queueLength(other, resource)) === 1, { what: 'nothing left of it' })
    await other.release(last)
  } finally {
    await Promise.all([engine.close(), other.close()])
  }
}
