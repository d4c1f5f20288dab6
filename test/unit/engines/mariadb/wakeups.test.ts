import { expect, test } from 'vitest'
import { MariadbWakeups } from '../../../../src/engines/mariadb/wakeups.ts'
import { systemRandom } from '../../../../src/random.ts'
import { ManualClock } from '../../../../harness/manual-clock.ts'

/** Resources that are free have a counter; the others are held. */
class Table {
  readonly clock = new ManualClock()
  readonly free = new Map<string, string | undefined>()
  readonly looks: (readonly string[])[] = []
  failure: Error | undefined
  readonly wakeups = new MariadbWakeups({
    clock: this.clock,
    random: systemRandom,
    free: async (resources) => {
      this.looks.push(resources)
      if (this.failure !== undefined) throw this.failure
      return new Map([...this.free].filter(([name]) => resources.includes(name)))
    },
  })

  async advance(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 5) await this.clock.advance(5)
  }
}

test('one look serves all who wait, and wakes those whose resource has become free', async () => {
  const table = new Table()
  const freed = { a: 0, b: 0 }
  const watches = [table.wakeups.watch(['a'], () => freed.a++), table.wakeups.watch(['b'], () => freed.b++)]
  expect(await watches[0]!.armed).toBe(true)
  await table.advance(25)
  expect(table.looks.every((names) => names.join() === 'a,b')).toBe(true)
  expect(freed).toEqual({ a: 0, b: 0 })
  table.free.set('a', '7')
  await table.advance(60)
  expect(freed).toEqual({ a: 1, b: 0 })
  for (const watch of watches) watch.close()
  await table.wakeups.close()
  expect(table.clock.timers).toBe(0)
})

test('a resource that stays free wakes nobody twice; one that was held and freed between two looks does', async () => {
  const table = new Table()
  let freed = 0
  table.free.set('a', '7')
  table.wakeups.watch(['a'], () => freed++)
  await table.advance(500)
  expect(freed).toBe(1)
  table.free.set('a', '8')
  await table.advance(250)
  expect(freed).toBe(2)
  await table.wakeups.close()
})

test('the pauses grow while nothing happens, and are short again after a release and for somebody new', async () => {
  const table = new Table()
  const looksIn = async (ms: number): Promise<number> => {
    const before = table.looks.length
    await table.advance(ms)
    return table.looks.length - before
  }
  const freed: string[] = []
  table.wakeups.watch(['a'], () => freed.push('a'))
  expect(await looksIn(100)).toBeGreaterThanOrEqual(2)
  await table.advance(3000)
  expect(await looksIn(1000)).toBeLessThanOrEqual(8)
  table.free.set('a', '7')
  freed.length = 0
  while (freed.length === 0) await table.advance(5)
  expect(await looksIn(100)).toBeGreaterThanOrEqual(2)
  await table.advance(3000)
  table.wakeups.watch(['b'], () => undefined)
  expect(await looksIn(100)).toBeGreaterThanOrEqual(2)
  await table.wakeups.close()
})

test('once a second everybody makes an attempt, also if no look is answered', async () => {
  const table = new Table()
  let attempts = 0
  table.failure = new Error('no connection')
  table.wakeups.watch(['a'], () => attempts++)
  await table.advance(4000)
  expect(attempts).toBeGreaterThanOrEqual(2)
  expect(attempts).toBeLessThanOrEqual(4)
  await table.wakeups.close()
})

test('nobody looks when nobody waits, nor after the end', async () => {
  const table = new Table()
  table.wakeups.watch(['a'], () => undefined).close()
  await table.advance(1000)
  expect(table.clock.timers).toBe(0)
  expect(table.looks.flat()).toEqual([])
  await table.wakeups.close()
  const late = table.wakeups.watch(['a'], () => undefined)
  expect(await late.armed).toBe(false)
  expect(table.clock.timers).toBe(0)
})
