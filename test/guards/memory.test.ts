import { expect, test } from 'vitest'
import { memory } from '../../src/engines/memory.ts'
import { memoryGuard, type Fence } from '../../src/guards/index.ts'
import { createLocks } from '../../src/index.ts'
import { guardSuite, leaseOf } from './suite.ts'

const fences = new Map<string, Fence>()
const values = new Map<string, number>()

guardSuite('a Map', () => ({
  guard: (options) => memoryGuard(fences, options),
  read: async (resource) => values.get(resource) ?? 0,
  write: (guard, lease, value) =>
    guard.write(lease, () => {
      for (const resource of lease.resources) values.set(resource, value)
    }),
}))

test('write returns what the work returns, and rejects with its error', async () => {
  const guard = memoryGuard()
  expect(await guard.write(leaseOf('a', 1n), () => 'done')).toBe('done')
  const broken = new Error('broken')
  const breaks = (): never => {
    throw broken
  }
  await expect(guard.write(leaseOf('a', 1n), breaks)).rejects.toBe(broken)
})

test('the work does not run for a stale token, nor for a lease that is over', async () => {
  const guard = memoryGuard()
  await using locks = createLocks(memory())
  const [older, newer] = [await locks.acquire('a'), await locks.acquire('b')]
  let runs = 0
  await guard.enter(leaseOf('a', older.token + 1n, older.engine))
  await expect(guard.write(older, () => runs++)).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: older.token + 1n })
  await newer.release()
  await expect(guard.write(newer, () => runs++)).rejects.toMatchObject({ code: 'LEASE_LOST' })
  expect(runs).toBe(0)
})

test('work that waits is refused, because another holder could come in between; its own error is not lost elsewhere', async () => {
  const late = Promise.reject(new Error('late'))
  await expect(memoryGuard().write(leaseOf('a', 1n), () => late)).rejects.toThrow(
    new TypeError('work: expected a function that does not wait, got one that returned a promise'),
  )
})

test('arguments that can not be are refused by name', async () => {
  expect(() => memoryGuard(7 as never)).toThrow('fences: expected a Map, got 7')
  expect(() => memoryGuard({ observe: () => undefined } as never)).toThrow('options are the second argument')
  await expect(memoryGuard().write(leaseOf('a', 1n), 7 as never)).rejects.toThrow('work: expected a function, got 7')
})
