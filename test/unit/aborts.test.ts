import { getEventListeners } from 'node:events'
import { expect, onTestFinished, test } from 'vitest'
import { onAbort } from '../../src/aborts.ts'
import { settled } from '../../harness/manual-clock.ts'
import { bench, neighbour, watched } from './bench.ts'

test('one signal for fifty waits and twenty elections is no leak to Node, and ends them all', async () => {
  const warned: Error[] = []
  const listener = (warning: Error): void =>
    void (warning.name === 'MaxListenersExceededWarning' && warned.push(warning))
  process.on('warning', listener)
  onTestFinished(() => void process.off('warning', listener))
  const it = bench({ wait: '1h' })
  const held = await neighbour(it).acquire('held')
  const { signal, abort } = controller()
  const waits = Array.from({ length: 50 }, (_, index) => {
    const name = index % 2 === 0 ? 'held' : ['held', `other ${index}`]
    return watched(it.locks.acquire(name, { signal }))
  })
  const elections = Array.from({ length: 20 }, (_, index) =>
    watched(it.locks.elect(`leader ${index}`, { signal }, (lease) => untilAborted(lease.signal))),
  )
  await it.clock.advance(10)
  // Node tells of it with the next turn of its loop.
  await settled()
  expect(warned).toEqual([])
  expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  const reason = new Error('shutting down')
  abort(reason)
  await it.clock.advance(10)
  for (const call of [...waits, ...elections]) expect(call).toMatchObject({ state: 'rejected', reason })
  expect(getEventListeners(signal, 'abort')).toEqual([])
  await held.release()
})

test('a signal that nobody waits for any more has no listener of ours', () => {
  const { signal, abort } = controller()
  const heard: string[] = []
  const stops = ['a', 'b'].map((name) => onAbort(signal, () => heard.push(name)))
  stops[0]!()
  stops[0]!()
  expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  stops[1]!()
  expect(getEventListeners(signal, 'abort')).toEqual([])
  onAbort(signal, () => heard.push('c'))
  stops[1]!()
  abort(new Error('now'))
  expect(heard).toEqual(['c'])
})

function controller(): { signal: AbortSignal; abort: (reason: Error) => void } {
  const made = new AbortController()
  return { signal: made.signal, abort: (reason) => made.abort(reason) }
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve()))
}
