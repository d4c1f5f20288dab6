import { expect, test } from 'vitest'
import type { ListenConnection, NotificationListener } from '../../../../src/engines/postgres/client.ts'
import { PostgresWakeups } from '../../../../src/engines/postgres/wakeups.ts'
import { systemRandom } from '../../../../src/random.ts'
import { ManualClock, settled } from '../../../../harness/manual-clock.ts'
import { Gate } from '../../../../harness/scripted-engine.ts'

/** A channel on which everyone hears what is sent, unless the test says otherwise. */
class Channel {
  readonly clock = new ManualClock()
  readonly sent: string[] = []
  opened = 0
  closed = 0
  isDeaf = false
  opening: Promise<void> = Promise.resolve()
  listener: NotificationListener | undefined
  readonly wakeups = new PostgresWakeups({
    clock: this.clock,
    random: systemRandom,
    senderId: 'me ',
    open: async (listener) => this.#open(listener),
    notify: async (payload) => this.notify(payload),
  })

  notify(payload: string): void {
    this.sent.push(payload)
    if (!this.isDeaf) this.listener?.notified(payload)
  }

  async #open(listener: NotificationListener): Promise<ListenConnection> {
    this.opened++
    await this.opening
    this.listener = listener
    return { close: async () => void this.closed++ }
  }
}

test('a watch is armed when we have heard ourselves, and hears others, not ourselves', async () => {
  const channel = new Channel()
  let freed = 0
  const watch = channel.wakeups.watch(['a b'], () => freed++)
  expect(await watch.armed).toBe(true)
  expect(channel.wakeups.isWatched(['x', 'a b'])).toBe(true)
  channel.notify('you a b')
  channel.notify('me a b')
  channel.notify('you b')
  channel.notify('pulse a b')
  expect(freed).toBe(1)
  watch.close()
  expect(channel.wakeups.isWatched(['a b'])).toBe(false)
  channel.notify('you a b')
  expect(freed).toBe(1)
  await channel.wakeups.close()
  expect(channel.closed).toBe(1)
  expect(channel.clock.timers).toBe(0)
})

test('many watches share one connection and one proof', async () => {
  const channel = new Channel()
  const watches = ['a', 'b', 'c'].map((name) => channel.wakeups.watch([name], () => undefined))
  expect(await Promise.all(watches.map(({ armed }) => armed))).toEqual([true, true, true])
  expect({ opened: channel.opened, sent: channel.sent.length }).toEqual({ opened: 1, sent: 1 })
  await channel.wakeups.close()
})

test('while somebody watches the line is proved every 5 s, and not when nobody does', async () => {
  const channel = new Channel()
  const watch = channel.wakeups.watch(['a'], () => undefined)
  await watch.armed
  await channel.clock.advance(20_000)
  expect(channel.sent.length).toBe(5)
  watch.close()
  await channel.clock.advance(60_000)
  expect(channel.sent.length).toBe(5)
  expect(channel.clock.timers).toBe(0)
  await channel.wakeups.close()
})

test('who hears nothing polls, is asked again later and not at every attempt, and hears when it is better', async () => {
  const channel = new Channel()
  channel.isDeaf = true
  let freed = 0
  const watch = channel.wakeups.watch(['a'], () => freed++)
  await channel.clock.advance(2000)
  expect(await watch.armed).toBe(false)
  expect(await channel.wakeups.watch(['a'], () => undefined).armed).toBe(false)
  expect(channel.opened).toBe(1)
  await channel.clock.advance(30_000)
  expect(freed).toBeGreaterThan(5)
  expect(channel.opened).toBeLessThan(10)
  expect(channel.closed).toBe(channel.opened)
  channel.isDeaf = false
  await channel.clock.advance(60_000)
  const calls = freed
  channel.notify('you a')
  expect(freed).toBe(calls + 1)
  await channel.wakeups.close()
})

test('after a loss the watchers are called, and called again when the line is back', async () => {
  const channel = new Channel()
  let freed = 0
  const watch = channel.wakeups.watch(['a'], () => freed++)
  await watch.armed
  channel.listener!.lost()
  expect(freed).toBe(1)
  await channel.clock.advance(0)
  expect({ freed, opened: channel.opened }).toEqual({ freed: 2, opened: 2 })
  channel.listener!.back()
  expect(freed).toBe(3)
  await channel.wakeups.close()
})

test('a line that opens after we gave up is closed', async () => {
  const channel = new Channel()
  const gate = new Gate()
  channel.opening = gate.opened
  const watch = channel.wakeups.watch(['a'], () => undefined)
  watch.close()
  await channel.clock.advance(2000)
  expect(await watch.armed).toBe(false)
  gate.open()
  await settled()
  expect(channel.closed).toBe(1)
  await channel.wakeups.close()
})

test('after the end nothing is armed', async () => {
  const channel = new Channel()
  await channel.wakeups.close()
  expect(await channel.wakeups.watch(['a'], () => undefined).armed).toBe(false)
  expect(channel.opened).toBe(0)
})
