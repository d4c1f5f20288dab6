import { describe, expect, test } from 'vitest'
import { fails, Gate } from '../../harness/scripted-engine.ts'
import { EngineError } from '../../src/errors.ts'
import { bench, neighbour, watched } from './bench.ts'

describe('tryAcquire with a wait', () => {
  test('gives the lease as soon as it is free', async () => {
    const it = bench()
    const rival = await neighbour(it).acquire('a', { ttl: '1h' })
    const tried = watched(it.locks.tryAcquire('a', { wait: '10s' }))
    await it.clock.advance(9000)
    expect(tried.state).toBe('pending')
    await rival.release()
    await it.clock.advance(100)
    expect(tried).toMatchObject({ state: 'resolved', value: { held: true, resources: ['a'] } })
  })

  test('gives null when the wait is over, whether another process has it or this one', async () => {
    const it = bench()
    await neighbour(it).acquire('a', { ttl: '1h' })
    await it.locks.acquire('b')
    const tried = [
      watched(it.locks.tryAcquire('a', { wait: '100ms' })),
      watched(it.locks.tryAcquire('b', { wait: 100 })),
    ]
    await it.clock.advance(99)
    expect(tried.map(({ state }) => state)).toEqual(['pending', 'pending'])
    await it.clock.advance(1)
    expect(tried).toMatchObject([
      { state: 'resolved', value: null },
      { state: 'resolved', value: null },
    ])
    expect(it.events.filter(({ type }) => type === 'denied')).toMatchObject([
      { reason: 'timeout' },
      { reason: 'timeout' },
    ])
  })

  test('is not what the locks wait by default: without a wait it does not wait', async () => {
    const it = bench({ wait: '1h' })
    await neighbour(it).acquire('a', { ttl: '1h' })
    expect(await it.locks.tryAcquire('a')).toBeNull()
    expect(await it.locks.tryAcquire('a', { ttl: '5s' })).toBeNull()
    expect(it.engine.count('watch')).toBe(0)
  })

  test('rejects where the engine could not be asked, and never gives null for it', async () => {
    const it = bench()
    const down = fails(new EngineError('down', ['a']))
    it.engine.next.acquire.push(...Array.from({ length: 100 }, () => down))
    const tried = watched(it.locks.tryAcquire('a', { wait: '1s' }))
    await it.clock.advance(1000)
    expect(tried).toMatchObject({ state: 'rejected', reason: { code: 'ENGINE', message: 'down' } })
  })

  test('rejects where the engine has not answered, also for one that waits behind a waiter for other names', async () => {
    const it = bench()
    const gate = new Gate()
    it.engine.next.acquire.push(async (_request, pass) => {
      await gate.opened
      return pass()
    })
    const first = watched(it.locks.acquire('a'))
    const between = watched(it.locks.acquire(['a', 'b']))
    const last = watched(it.locks.tryAcquire('b', { wait: '1s' }))
    await it.clock.advance(1000)
    expect(last).toMatchObject({ state: 'rejected', reason: { code: 'ENGINE' } })
    gate.open()
    await it.clock.advance(10)
    expect([first.state, between.state]).toEqual(['resolved', 'pending'])
    await first.value!.release()
    await it.clock.advance(10)
    expect(between.state).toBe('resolved')
  })
})

describe('the signal of tryAcquire', () => {
  const enough = new Error('enough')

  test('that has aborted before rejects at once, with and without a wait', async () => {
    const it = bench()
    for (const wait of [0, '1s'] as const) {
      await expect(it.locks.tryAcquire('a', { wait, signal: AbortSignal.abort(enough) })).rejects.toBe(enough)
    }
    expect(it.engine.calls).toEqual([])
  })

  test('ends the wait', async () => {
    const it = bench()
    const controller = new AbortController()
    await it.locks.acquire('a')
    const tried = watched(it.locks.tryAcquire('a', { wait: '1h', signal: controller.signal }))
    await it.clock.advance(1000)
    controller.abort(enough)
    await it.clock.advance(0)
    expect(tried).toMatchObject({ state: 'rejected', reason: enough })
  })

  test.each(['tryAcquire', 'acquire'] as const)(
    'of %s without a wait ends an attempt that is under way, and what it gets is given back',
    async (call) => {
      const it = bench()
      const gate = new Gate()
      it.engine.next.acquire.push(async (_request, pass) => {
        await gate.opened
        return pass()
      })
      const controller = new AbortController()
      const tried = watched(it.locks[call]('a', { wait: 0, signal: controller.signal }))
      await it.clock.advance(10)
      controller.abort(enough)
      await it.clock.advance(0)
      expect(tried).toMatchObject({ state: 'rejected', reason: enough })
      expect(it.events.at(-1)).toMatchObject({ type: 'denied', reason: 'aborted', cause: enough })
      gate.open()
      await it.clock.advance(10)
      expect(it.engine.ops).toEqual(['acquire', 'release'])
      expect(await it.leases()).toEqual([])
    },
  )

  test('that aborts during an attempt which is refused or fails later is told once', async () => {
    for (const outcome of ['refused', 'failed'] as const) {
      const it = bench()
      const gate = new Gate()
      it.engine.next.acquire.push(async () => {
        await gate.opened
        if (outcome === 'failed') throw new EngineError('down', ['a'])
        return { kind: 'refused', reason: 'held' }
      })
      const controller = new AbortController()
      const tried = watched(it.locks.tryAcquire('a', { signal: controller.signal }))
      await it.clock.advance(10)
      controller.abort(enough)
      gate.open()
      await it.clock.advance(10)
      expect(tried.reason).toBe(enough)
      expect(it.told().filter((type) => type === 'denied')).toHaveLength(1)
    }
  })

  test('that aborts after the lease was given does nothing', async () => {
    const it = bench()
    const controller = new AbortController()
    const lease = await it.locks.tryAcquire('a', { signal: controller.signal })
    controller.abort(enough)
    await it.clock.advance(10)
    expect(lease).toMatchObject({ held: true })
    expect(it.told()).not.toContain('denied')
  })
})
