import { describe, expect, onTestFinished, test } from 'vitest'
import { settled } from '../../harness/manual-clock.ts'
import { Gate, lost } from '../../harness/scripted-engine.ts'
import { until } from '../../harness/until.ts'
import { bench, refOf, type Bench } from './bench.ts'

describe('a lease that is garbage-collected unreleased', () => {
  test('is no longer renewed, warns once, and leaves its resource to run out', async () => {
    const seen = warnings('forgotten')
    const it = bench({ ttl: '30s' })
    const gone = await acquireAndForget(it, 'forgotten')
    // From its first renewal on nobody but its user keeps it.
    await it.clock.advance(10_000)
    expect(it.engine.count('extend')).toBe(1)
    await until(
      () => {
        globalThis.gc!()
        return gone.deref() === undefined && it.told().includes('lost')
      },
      { what: 'the lease to be collected' },
    )
    await settled()
    expect(seen.map(({ name, code }) => [name, code])).toEqual([['RingfenceWarning', 'RINGFENCE_ABANDONED']])
    expect(seen[0]!.message).toContain('the lease on forgotten was garbage-collected')
    expect(it.events.at(-1)).toMatchObject({ type: 'lost', reason: 'abandoned' })
    await it.clock.advance(29_999)
    expect(it.engine.count('extend')).toBe(1)
    expect(await it.leases()).toHaveLength(1)
    await it.clock.advance(1)
    expect(await it.leases()).toEqual([])
  })

  test('says nothing when it was released, was lost, or is in use', async () => {
    const seen = warnings('kept', 'released', 'lost')
    const it = bench({ ttl: '30s' })
    const kept = await it.locks.acquire('kept')
    const refs: WeakRef<object>[] = []
    await (async () => {
      const released = await it.locks.acquire('released')
      await released.release()
      const lostOne = await it.locks.acquire('lost')
      await it.engine.inner.release(refOf(lostOne))
      await it.clock.advance(10_000)
      refs.push(new WeakRef(released), new WeakRef(lostOne))
    })()
    await until(
      () => {
        globalThis.gc!()
        return refs.every((ref) => ref.deref() === undefined)
      },
      { what: 'the leases to be collected' },
    )
    await settled()
    await settled()
    expect(seen).toEqual([])
    expect(kept.held).toBe(true)
  })

  test.each([
    ['the signal', (signal: AbortSignal) => signal],
    ['a signal made from it', (signal: AbortSignal) => AbortSignal.any([signal])],
    [
      'a listener',
      (signal: AbortSignal) => {
        const heard = new AbortController()
        signal.addEventListener('abort', () => heard.abort(signal.reason))
        return heard.signal
      },
    ],
  ])('goes on while somebody has %s, and says that nobody can release it', async (what, observe) => {
    const name = `kept by ${what}`
    const seen = warnings(name)
    const it = bench({ ttl: '30s' })
    const kept = await (async () => {
      const lease = await it.locks.acquire(name)
      return { signal: observe(lease.signal), gone: new WeakRef(lease) }
    })()
    await it.clock.advance(10_000)
    await until(
      () => {
        globalThis.gc!()
        return kept.gone.deref() === undefined && seen.length > 0
      },
      { what: 'the lease to be collected' },
    )
    expect(seen.map(({ code, message }) => [code, message])).toEqual([
      ['RINGFENCE_UNRELEASED', expect.stringContaining('keep the lease to release it')],
    ])
    await it.clock.advance(60_000)
    expect(it.engine.count('extend')).toBeGreaterThan(5)
    expect([kept.signal.aborted, await it.leases()]).toMatchObject([false, [{ resource: name }]])
    it.engine.next.extend.push(lost)
    await it.clock.advance(10_000)
    expect(kept.signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'stolen' })
  })

  test('is not what happens to the lease of a `using` whose work forgets it', async () => {
    const seen = warnings('forgotten-by-work')
    const it = bench()
    const gate = new Gate()
    const work = it.locks.using('forgotten-by-work', async () => {
      await gate.opened
      return 'done'
    })
    await it.clock.advance(0)
    for (let i = 0; i < 5; i++) {
      globalThis.gc!()
      await settled()
    }
    gate.open()
    await expect(work).resolves.toBe('done')
    expect(seen).toEqual([])
  })
})

/** The warnings about these leases. They are the process's own, and leases of other tests are collected whenever. */
function warnings(...names: string[]): (Error & { code?: string })[] {
  const seen: (Error & { code?: string })[] = []
  const listener = (warning: Error): void => {
    if (names.some((name) => warning.message.includes(`the lease on ${name} was`))) seen.push(warning)
  }
  process.on('warning', listener)
  onTestFinished(() => void process.off('warning', listener))
  return seen
}

/** In a function of its own, so that nothing on the stack keeps the lease. */
async function acquireAndForget({ locks }: Bench, name: string): Promise<WeakRef<object>> {
  return new WeakRef(await locks.acquire(name))
}
