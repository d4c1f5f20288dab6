import { describe, expect, test } from 'vitest'
import { EngineError, LeaseLostError } from '../../src/errors.ts'
import type { Lease } from '../../src/lease.ts'
import { fails, Gate, lost } from '../../harness/scripted-engine.ts'
import { bench, neighbour, watched } from './bench.ts'

/** Leads until told to stop by its signal, as a leader should. */
function untilAborted({ signal }: Lease): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason as Error)
    signal.addEventListener('abort', () => reject(signal.reason as Error))
  })
}

describe('an election', () => {
  test('waits for the leadership for as long as it takes, leads, and steps down with the result', async () => {
    const it = bench({ wait: 0 })
    const rival = await neighbour(it).acquire('leader', { ttl: '1h' })
    const terms: Lease[] = []
    const elected = watched(
      it.locks.elect('leader', (lease) => {
        terms.push(lease)
        return 'done'
      }),
    )
    await it.clock.advance(1_800_000)
    expect([elected.state, terms.length]).toEqual(['pending', 0])
    await rival.release()
    await it.clock.advance(10)
    expect(elected).toMatchObject({ state: 'resolved', value: 'done' })
    expect(terms).toHaveLength(1)
    expect(await it.leases()).toEqual([])
  })

  test('campaigns again after a loss, with a higher token', async () => {
    const it = bench({ ttl: '3s' })
    const tokens: bigint[] = []
    const elected = watched(
      it.locks.elect('leader', (lease) => {
        tokens.push(lease.token)
        return tokens.length < 3 ? untilAborted(lease) : 'third time lucky'
      }),
    )
    it.engine.next.extend.push(lost, lost)
    await it.clock.advance(20_000)
    expect(elected).toMatchObject({ state: 'resolved', value: 'third time lucky' })
    expect(tokens).toHaveLength(3)
    expect(tokens[0]! < tokens[1]! && tokens[1]! < tokens[2]!).toBe(true)
  })

  test.each([
    ['an AbortError', () => new DOMException('stopped', 'AbortError')],
    ['a LeaseLostError', () => new LeaseLostError(['leader'], 'stolen')],
  ])('takes %s after a loss for the news of it', async (_what, error) => {
    const it = bench({ ttl: '3s' })
    let terms = 0
    it.engine.next.extend.push(lost)
    const elected = watched(
      it.locks.elect('leader', async (lease) => {
        if (++terms === 2) return 'again'
        await untilAborted(lease).catch(() => undefined)
        throw error()
      }),
    )
    await it.clock.advance(10_000)
    expect(elected).toMatchObject({ state: 'resolved', value: 'again' })
  })

  test('ends with the leader’s own error, and gives the leadership up', async () => {
    const it = bench()
    const error = new Error('of the leader')
    await expect(it.locks.elect('leader', () => Promise.reject(error))).rejects.toBe(error)
    expect(await it.leases()).toEqual([])
  })

  test('ends with the leader’s own error also after a loss, unless it is the news of it', async () => {
    const it = bench({ ttl: '3s' })
    const error = new Error('could not flush')
    it.engine.next.extend.push(lost)
    const elected = watched(
      it.locks.elect('leader', async (lease) => {
        await untilAborted(lease).catch(() => undefined)
        throw error
      }),
    )
    await it.clock.advance(2000)
    expect(elected).toMatchObject({ state: 'rejected', reason: error })
  })

  test('campaigns again when only the release finds that it was no longer the leader', async () => {
    const it = bench()
    it.engine.next.release.push(() => ({ ours: false, awaited: 0 }))
    let terms = 0
    const elected = watched(it.locks.elect('leader', () => ++terms))
    await it.clock.advance(60_000)
    expect(elected).toMatchObject({ state: 'resolved', value: 2 })
  })

  test('takes one name: the leadership of two things is two', async () => {
    const it = bench()
    const elected = it.locks.elect(['x', 'y'] as never, () => 1)
    await expect(elected).rejects.toThrow(/^resource: expected a string, got an array/)
    expect(it.engine.calls).toEqual([])
  })

  test('does not campaign again after an AbortError that came while leading', async () => {
    const it = bench()
    const error = new DOMException('a request of the leader was aborted', 'AbortError')
    await expect(it.locks.elect('leader', () => Promise.reject(error))).rejects.toBe(error)
    expect(it.engine.count('acquire')).toBe(1)
  })

  test('ends with its signal: the leader is told, waited for, and the leadership given up', async () => {
    const it = bench()
    const controller = new AbortController()
    const gate = new Gate()
    const seen: unknown[] = []
    const elected = watched(
      it.locks.elect('leader', { signal: controller.signal }, async (lease) => {
        await untilAborted(lease).catch((reason: unknown) => seen.push(reason))
        await gate.opened
      }),
    )
    await it.clock.advance(10)
    const reason = new Error('shutting down')
    controller.abort(reason)
    await it.clock.advance(10)
    expect(seen).toEqual([reason])
    expect(elected.state).toBe('pending')
    gate.open()
    await it.clock.advance(10)
    expect(elected).toMatchObject({ state: 'rejected', reason })
    expect(await it.leases()).toEqual([])
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('keeps and renews the lease after its signal, until the work has settled', async () => {
    const it = bench({ ttl: '3s' })
    const controller = new AbortController()
    const gate = new Gate()
    let leader: Lease | undefined
    const elected = watched(
      it.locks.elect('leader', { signal: controller.signal }, (lease) => {
        leader = lease
        return gate.opened
      }),
    )
    const rival = watched(neighbour(it).elect('leader', (lease) => lease.token))
    await it.clock.advance(10)
    const reason = new Error('shutting down')
    controller.abort(reason)
    await it.clock.advance(20_000)
    expect(leader).toMatchObject({ held: true, signal: { aborted: true, reason } })
    expect([elected.state, rival.state]).toEqual(['pending', 'pending'])
    gate.open()
    await it.clock.advance(1000)
    expect(elected).toMatchObject({ state: 'rejected', reason })
    expect(leader).toMatchObject({ held: false, released: true })
    expect(rival).toMatchObject({ state: 'resolved', value: leader!.token + 1n })
  })

  test('a loss after its signal ends the lease of the leader, who is still waited for', async () => {
    const it = bench({ ttl: '3s' })
    const controller = new AbortController()
    const gate = new Gate()
    let leader: Lease | undefined
    const elected = watched(
      it.locks.elect('leader', { signal: controller.signal }, (lease) => {
        leader = lease
        return gate.opened
      }),
    )
    await it.clock.advance(10)
    const reason = new Error('shutting down')
    controller.abort(reason)
    it.engine.next.extend.push(lost)
    await it.clock.advance(2000)
    expect(leader).toMatchObject({ held: false, signal: { reason } })
    expect(elected.state).toBe('pending')
    gate.open()
    await it.clock.advance(10)
    expect(elected).toMatchObject({ state: 'rejected', reason })
    expect(it.engine.count('acquire')).toBe(1)
  })

  test.each([
    ['the reason of its signal', (reason: Error) => reason, 'reason'],
    ['an AbortError', () => new DOMException('stopped', 'AbortError'), 'reason'],
    ['an error of its own', () => new Error('could not flush'), 'own'],
  ])('after its signal, %s of the leader', async (_what, errorOf, expected) => {
    const it = bench()
    const controller = new AbortController()
    const reason = new Error('shutting down')
    const error = errorOf(reason)
    const elected = watched(
      it.locks.elect('leader', { signal: controller.signal }, async (lease) => {
        await untilAborted(lease).catch(() => undefined)
        throw error
      }),
    )
    await it.clock.advance(10)
    controller.abort(reason)
    await it.clock.advance(10)
    expect(elected).toMatchObject({ state: 'rejected', reason: expected === 'own' ? error : reason })
    expect(await it.leases()).toEqual([])
  })

  test('sees a signal that aborts in the very moment of the grant', async () => {
    const controller = new AbortController()
    const reason = new Error('shutting down')
    const it = bench({
      observe: (event) => void (event.type === 'granted' && controller.abort(reason)),
    })
    const elected = watched(it.locks.elect('leader', { signal: controller.signal }, untilAborted))
    await it.clock.advance(10)
    expect(elected).toMatchObject({ state: 'rejected', reason })
    expect(await it.leases()).toEqual([])
  })

  test('ends with its signal while it still campaigns', async () => {
    const it = bench()
    await neighbour(it).acquire('leader', { ttl: '1h' })
    const controller = new AbortController()
    const elected = watched(it.locks.elect('leader', { signal: controller.signal }, untilAborted))
    await it.clock.advance(10)
    const reason = new Error('shutting down')
    controller.abort(reason)
    await it.clock.advance(10)
    expect(elected).toMatchObject({ state: 'rejected', reason })
    expect(it.clock.foregroundTimers).toBe(0)
  })

  test('goes on over failures of the engine that may pass', async () => {
    const it = bench({}, { watch: false })
    it.engine.next.acquire.push(...Array.from({ length: 10 }, () => fails(new EngineError('no answer', ['leader']))))
    const elected = watched(it.locks.elect('leader', () => 'led'))
    await it.clock.advance(60_000)
    expect(elected).toMatchObject({ state: 'resolved', value: 'led' })
  })

  test('ends when the locks are closed', async () => {
    const it = bench()
    const elected = watched(it.locks.elect('leader', untilAborted))
    await it.clock.advance(10)
    await it.locks.close()
    await it.clock.advance(10)
    expect(elected).toMatchObject({
      state: 'rejected',
      reason: { message: 'these locks are closed; for new ones call createLocks with a new engine' },
    })
  })

  test('without a function to lead with is a TypeError, before anything is acquired', async () => {
    const it = bench()
    await expect(it.locks.elect('leader', 5 as never)).rejects.toThrow(
      /^work: expected a function, the last argument of elect, got /,
    )
    await expect(it.locks.elect('leader', null as never, () => 1)).rejects.toThrow(
      /^options: expected an object, got null/,
    )
    expect(it.engine.calls).toEqual([])
  })
})
