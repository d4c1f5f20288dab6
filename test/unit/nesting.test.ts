import { describe, expect, onTestFinished, test } from 'vitest'
import { settled } from '../../harness/manual-clock.ts'
import { Gate, lost } from '../../harness/scripted-engine.ts'
import type { Lease } from '../../src/lease.ts'
import { bench, watched, type Bench } from './bench.ts'

const REENTRANT = { reentrant: true }

function after({ clock }: Bench, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.timer(resolve, ms))
}

function aborted({ signal }: Lease): Promise<unknown> {
  return new Promise((resolve) => signal.addEventListener('abort', resolve))
}

describe('a reentrant call inside of a reentrant using', () => {
  test.each<[string, (it: Bench) => Promise<Lease | null>]>([
    ['acquire', (it) => it.locks.acquire('a', REENTRANT)],
    ['acquire without a wait', (it) => it.locks.acquire('a', { ...REENTRANT, wait: 0 })],
    ['tryAcquire', (it) => it.locks.tryAcquire('a', REENTRANT)],
    ['tryAcquire with a wait', (it) => it.locks.tryAcquire('a', { ...REENTRANT, wait: '1s' })],
    ['using', (it) => it.locks.using('a', REENTRANT, (lease) => lease)],
  ])('of %s joins its lease, without asking the engine', async (_call, inner) => {
    const it = bench()
    await it.locks.using('a', REENTRANT, async (outer) => {
      await settled()
      const lease = (await inner(it))!
      expect([lease.token, lease.owner, lease.resources]).toEqual([outer.token, outer.owner, ['a']])
      expect(lease.signal).toBe(outer.signal)
      expect(outer.held).toBe(true)
    })
    expect(it.engine.ops).toEqual(['acquire', 'release'])
    expect(await it.leases()).toEqual([])
  })

  test('cannot hand off what it only joined, nor stop its renewal', async () => {
    const it = bench(REENTRANT)
    await it.locks.using('a', () =>
      it.locks.using('a', async (inner) => {
        await expect(inner.handOff()).rejects.toThrow('handOff: expected the lease itself')
        expect(() => inner.stopRenewing()).toThrow('stopRenewing: expected the lease itself')
        expect(inner.held).toBe(true)
      }),
    )
  })

  test('of any depth is inside, also through other locks in between', async () => {
    const it = bench(REENTRANT)
    const other = bench(REENTRANT)
    const tokens = await it.locks.using('a', ({ token }) =>
      it.locks.using('b', () =>
        other.locks.using('a', () =>
          it.locks.using('a', async (third) => {
            const fourth = await it.locks.acquire('b')
            return [token, third.token, fourth.token]
          }),
        ),
      ),
    )
    expect(tokens).toEqual([1n, 1n, 1n])
    expect(it.engine.ops).toEqual(['acquire', 'acquire', 'release', 'release'])
    expect(other.engine.ops).toEqual(['acquire', 'release'])
  })

  test('may ask for some of its names, but not for some of them and others', async () => {
    const it = bench({ ...REENTRANT, wait: 0 })
    await it.locks.using(['a', 'b', 'c'], async (outer) => {
      expect((await it.locks.acquire(['c', 'a'])).token).toBe(outer.token)
      const some = it.locks.acquire(['a', 'd'])
      await expect(some).rejects.toThrow(RangeError)
      await expect(some).rejects.toThrow(
        "resource: expected names of which the lease around this call, on 'a', 'b', 'c', has all or none, got 'a', 'd'; a call " +
          'cannot wait for a lease of its own caller: name all of them in the outer call',
      )
      await expect(it.locks.tryAcquire(['a', 'd'])).rejects.toThrow(RangeError)
      await expect(it.locks.using(['a', 'd'], () => 1)).rejects.toThrow(RangeError)
      await using own = await it.locks.acquire('d')
      expect(own.owner).not.toBe(outer.owner)
    })
    expect(await it.leases()).toEqual([])
  })

  test('may read inside of a writer and of a reader, but not write inside of a reader', async () => {
    const it = bench({ ...REENTRANT, wait: 0 })
    await it.locks.using('a', async (outer) => {
      expect(await it.locks.acquire('a', { shared: true })).toMatchObject({ token: outer.token, shared: false })
    })
    await it.locks.using('a', { shared: true }, async (outer) => {
      expect(await it.locks.acquire('a', { shared: true })).toMatchObject({ owner: outer.owner, shared: true })
      const writer = it.locks.acquire('a')
      await expect(writer).rejects.toThrow(RangeError)
      await expect(writer).rejects.toThrow(
        "shared: expected true, because the lease around this call, on 'a', is shared, got false; readers that wait to be alone " +
          'would wait for each other: take the outer lease without shared',
      )
    })
  })

  test('has a lease whose release ends only its own use', async () => {
    const it = bench(REENTRANT)
    await it.locks.using('a', async (outer) => {
      const inner = await it.locks.acquire('a')
      const other = await it.locks.acquire('a')
      expect(await Promise.all([inner.release(), inner.release()])).toEqual([true, true])
      expect([inner.held, inner.released, inner.remaining(), inner.state]).toEqual([false, true, 0, 'over'])
      expect(inner.toJSON()).toMatchObject({ held: false, over: 'released', remainingMs: 0 })
      expect(() => inner.assertHeld()).toThrow(expect.objectContaining({ reason: 'released' }))
      await expect(inner.extend()).rejects.toMatchObject({ reason: 'released' })
      await expect(inner.proved()).rejects.toMatchObject({ reason: 'released' })
      expect([outer.held, outer.released, outer.signal.aborted]).toEqual([true, false, false])
      expect([other.held, other.released, other.state]).toEqual([true, false, 'held'])
      await other.extend('1m')
      expect(outer.remaining()).toBe(60_000)
    })
    expect(it.engine.ops).toEqual(['acquire', 'extend', 'release'])
  })

  test('is told of a loss of the lease that it has joined', async () => {
    const it = bench({ ...REENTRANT, ttl: '3s' })
    it.engine.next.extend.push(lost)
    const inners: unknown[] = []
    const outer = watched(
      it.locks.using('a', async () => {
        await it.locks.using('a', aborted).catch((error: unknown) => inners.push(error))
        // The lease is over, so this one gets its own.
        await it.locks.using('a', (lease) => inners.push(lease.token))
      }),
    )
    await it.clock.advance(10_000)
    expect(inners).toMatchObject([{ code: 'LEASE_LOST', reason: 'stolen' }, 2n])
    expect(outer).toMatchObject({ state: 'rejected', reason: { reason: 'stolen' } })
  })

  test('that goes on when the using around it ends has lost its lease', async () => {
    const it = bench(REENTRANT)
    const gate = new Gate()
    let inner: Promise<unknown> | undefined
    await it.locks.using('a', () => {
      inner = it.locks.using('a', () => gate.opened)
    })
    gate.open()
    await expect(inner).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'released' })
  })

  test('that was left behind by a using that has ended gets its own lease', async () => {
    const it = bench(REENTRANT)
    const gate = new Gate()
    let left: Promise<Lease> | undefined
    const first = await it.locks.using('a', async (lease) => {
      left = gate.opened.then(() => it.locks.acquire('a'))
      return lease.owner
    })
    gate.open()
    const lease = await left!
    expect(lease.owner).not.toBe(first)
    expect(lease.held).toBe(true)
    expect(await it.leases()).toMatchObject([{ owner: lease.owner }])
  })

  test('that comes between the end of the work and the answer to the release waits for its own lease', async () => {
    const it = bench(REENTRANT)
    const [work, release] = [new Gate(), new Gate()]
    it.engine.next.release.push(async (_lease, pass) => {
      await release.opened
      return pass()
    })
    let left: ReturnType<typeof watched<Lease>> | undefined
    const outer = watched(
      it.locks.using('a', () => {
        void work.opened.then(() => (left = watched(it.locks.acquire('a'))))
      }),
    )
    await it.clock.advance(1)
    work.open()
    await it.clock.advance(1)
    expect([outer.state, left!.state]).toEqual(['pending', 'pending'])
    release.open()
    await it.clock.advance(1000)
    expect(left!.value!.token).toBe(2n)
  })

  test('does not join a lease that the work has given back itself', async () => {
    const it = bench(REENTRANT)
    await it.locks.using('a', async (outer) => {
      await outer.release()
      const own = await it.locks.acquire('a')
      expect(own.owner).not.toBe(outer.owner)
      await own.release()
    })
  })

  test('rejects with the reason of a signal that has aborted, and with the end of the locks', async () => {
    const it = bench(REENTRANT)
    const outer = it.locks.using('a', async () => {
      const enough = new Error('enough')
      await expect(it.locks.acquire('a', { signal: AbortSignal.abort(enough) })).rejects.toBe(enough)
      const closing = it.locks.close()
      await expect(it.locks.acquire('a')).rejects.toMatchObject({ code: 'ENGINE', transient: false })
      await closing
    })
    await expect(outer).rejects.toMatchObject({ reason: 'closed' })
  })

  test('is inside only if both say so', async () => {
    const it = bench({ wait: 0 })
    await it.locks.using('a', () => expect(it.locks.acquire('a', REENTRANT)).rejects.toMatchObject({ code: 'HELD' }))
    await it.locks.using('a', REENTRANT, () => expect(it.locks.acquire('a')).rejects.toMatchObject({ code: 'HELD' }))
    expect(await it.locks.using('a', REENTRANT, () => it.locks.tryAcquire('a'))).toBeNull()
  })

  test('is not what elect and once are, nor what is outside', async () => {
    const it = bench({ ...REENTRANT, wait: 0 })
    await it.locks.using('a', async () => {
      expect(await it.locks.once('a', {}, () => 1)).toEqual({ ran: false })
      const campaign = it.locks.elect('a', { signal: AbortSignal.timeout(1) }, () => 1)
      await expect(campaign).rejects.toMatchObject({ name: 'TimeoutError' })
    })
    const lease = await it.locks.acquire('a')
    await expect(it.locks.acquire('a')).rejects.toMatchObject({ code: 'HELD' })
    await lease.release()
    const gate = new Gate()
    const outer = it.locks.using('a', () => gate.opened)
    await it.clock.advance(1)
    await expect(it.locks.acquire('a')).rejects.toMatchObject({ code: 'HELD' })
    gate.open()
    await outer
  })
})

describe('a call without an end that stands behind a lease of its own process', () => {
  const waits = "a call waits for 'a' without an end, held by this very process for"
  const question = 'A lease is not re-entrant: is this call inside of the one that holds it?'
  const answer = 'this call is inside of the one that holds it: use that lease, or give both calls reentrant: true'

  test.each<[string, (it: Bench) => Promise<unknown>]>([
    ['an end', (it) => it.locks.acquire('a', { wait: '10m' })],
    ['a signal', (it) => it.locks.acquire('a', { wait: Infinity, signal: new AbortController().signal })],
    ['a campaign', (it) => it.locks.elect('a', () => 1)],
  ])('is not warned of where it has %s', async (_what, call) => {
    const seen = warnings()
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    const waiting = watched(call(it))
    await it.clock.advance(300_000)
    expect([waiting.state, seen]).toEqual(['pending', []])
    await lease.release()
    await settled()
  })

  test('is not warned of where one short lease follows another', async () => {
    const seen = warnings()
    const it = bench({ ttl: '30s', wait: Infinity })
    const queue = Array.from({ length: 5 }, () => it.locks.using('a', () => after(it, 20_000)))
    await it.clock.advance(300_000)
    await Promise.all(queue)
    expect(seen).toEqual([])
  })

  test('is warned of once the lease outlasts its ttl: first by a question, and when it is known by an answer, once each', async () => {
    const seen = warnings()
    const it = bench({ ttl: '30s', wait: Infinity })
    const nested = async (): Promise<void> => {
      const inner = it.locks.using('a', async () => {
        const waiting = watched(it.locks.acquire('a'))
        await it.clock.advance(90_000)
        expect(waiting.state).toBe('pending')
        return waiting
      })
      const waiting = await inner
      await settled()
      await waiting.value!.release()
    }
    for (let time = 0; time < 4; time++) await nested()
    await settled()
    expect(seen).toEqual([
      expect.stringMatching(new RegExp(`^${waits} [\\w. ]+\\. ${question.replace('?', '\\?')}$`)),
      expect.stringMatching(new RegExp(`^${waits} [\\w. ]+; ${answer}$`)),
    ])
  })
})

/** The texts of the process warnings of the test. */
function warnings(): string[] {
  const seen: string[] = []
  const listener = (warning: Error & { code?: string }): void => {
    if (warning.code === 'RINGFENCE_WAITS_FOR_ITSELF') seen.push(warning.message)
  }
  process.on('warning', listener)
  onTestFinished(() => void process.off('warning', listener))
  return seen
}

describe('a call that waits for itself', () => {
  const question = 'A lease is not re-entrant: is this call inside of the one that holds it?'
  const answer = '; this call is inside of the one that holds it: use that lease, or give both calls reentrant: true'

  test('is told so where the using around it is reentrant, whatever it wants', async () => {
    const it = bench({ wait: '2s' })
    await it.locks.using('a', REENTRANT, async () => {
      await expect(it.locks.acquire('a', { wait: 0 })).rejects.toThrow(answer)
      const waits = [watched(it.locks.acquire('a')), watched(it.locks.using(['a', 'b'], () => 1))]
      await it.clock.advance(2000)
      for (const wait of waits) expect(String(wait.reason)).toContain(answer)
    })
    await it.locks.using('a', { ...REENTRANT, shared: true }, async (outer) => {
      const writer = watched(it.locks.acquire('a'))
      await it.clock.advance(2000)
      expect(writer.reason).toMatchObject({ code: 'WAIT_TIMEOUT', holder: outer.owner })
      expect(String(writer.reason)).toContain(
        'this call is inside of the one that reads, and waits for itself: take the outer lease without',
      )
    })
  })

  test('is asked the first time where nobody could know, and from then on it is known', async () => {
    const it = bench({ wait: '2s' })
    const nested = async (): Promise<string> => {
      let message = ''
      await it.locks.using('a', async () => {
        const inner = watched(it.locks.acquire('a'))
        await it.clock.advance(2000)
        message = String(inner.reason)
      })
      return message
    }
    expect(await nested()).toContain(question)
    expect(await nested()).toContain(answer)
  })

  test('is another one than a call that waits for its neighbour', async () => {
    const it = bench({ wait: '2s', reentrant: true })
    const gate = new Gate()
    const first = it.locks.using('a', () => gate.opened)
    const second = watched(it.locks.using('a', () => 1))
    await it.clock.advance(2000)
    expect(String(second.reason)).toContain(question)
    gate.open()
    await first
  })

  test('with tryAcquire gets null, and that is no reason to look where calls are', async () => {
    const it = bench({ wait: '2s' })
    const tried = it.locks.using('a', async () => {
      const inner = watched(it.locks.tryAcquire('a', { wait: '1s' }))
      await it.clock.advance(1000)
      return inner
    })
    expect(await tried).toMatchObject({ state: 'resolved', value: null })
    const inner = it.locks.using('a', () => it.locks.acquire('a', { wait: 0 }))
    await expect(inner).rejects.toThrow(question)
  })
})

test('a call for a permit that waits for itself is told so, once these locks track where their calls are', async () => {
  const { clock, locks } = bench()
  const pool = locks.semaphore('gpu', 2)
  const messageOf = async (calls: number): Promise<string> => {
    if (calls > 0) return pool.using(() => messageOf(calls - 1))
    const inner = watched(pool.acquire({ wait: '1s' }))
    await clock.advance(1000)
    await inner.value?.release()
    return String(inner.reason)
  }
  const held = "WaitTimeoutError: waited 1 s while all 2 permits of 'gpu' were held, by this process"
  const itself = '; this call is inside of the work that holds what there is, and waits for itself: '
  expect(await messageOf(2)).toBe(held)
  expect(await messageOf(2)).toBe(`${held}${itself}take one permit, and hand it on`)
  // A permit that is not around it may be given back.
  const other = await pool.acquire()
  expect(await messageOf(1)).toBe(held)
  await other.release()
  expect(await messageOf(1)).toBe('undefined')
})
