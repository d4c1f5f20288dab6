import { describe, expect, onTestFinished, test } from 'vitest'
import { settled } from '../../harness/manual-clock.ts'
import { Gate, fails, lost, unknown } from '../../harness/scripted-engine.ts'
import { bench, watched, type Bench } from './bench.ts'

/** Every renewal from now on is in doubt. */
function cutOff({ engine }: Bench): void {
  engine.next.extend.push(...Array.from({ length: 1000 }, () => unknown('no answer')))
}

function mended({ engine }: Bench): void {
  engine.next.extend.length = 0
}

describe('the state of a lease', () => {
  test('is held, in doubt after a renewal that failed, held again after one that was proved, and over', async () => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    expect(lease.state).toBe('held')
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(10_000)
    expect([lease.state, lease.held]).toEqual(['doubtful', true])
    await it.clock.advance(1000)
    expect(lease.state).toBe('held')
    await lease.release()
    expect(lease.state).toBe('over')
  })

  test('is in doubt when a renewal has no answer for a sixth of the ttl after it was due', async () => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    it.engine.next.extend.push(() => new Promise(() => undefined))
    await it.clock.advance(15_000)
    expect(lease.state).toBe('held')
    await it.clock.advance(1)
    expect(lease.state).toBe('doubtful')
    await it.clock.advance(15_000)
    expect(lease.state).toBe('over')
  })

  test('is in doubt in a process that stood still beyond that, before any timer has fired', async () => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    it.clock.pass(20_000)
    expect(lease.state).toBe('doubtful')
  })

  test('is never in doubt where nothing is renewed', async () => {
    const it = bench({ ttl: '30s', renew: false })
    const lease = await it.locks.acquire('a')
    await it.clock.advance(25_000)
    it.engine.next.extend.push(unknown('no answer'))
    await expect(lease.extend()).rejects.toMatchObject({ code: 'ENGINE' })
    expect(lease.state).toBe('held')
    await lease.proved()
    expect(it.engine.count('extend')).toBe(1)
  })
})

describe('proved()', () => {
  test('resolves at once without doubt, and asks nobody', async () => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    await it.clock.advance(9000)
    await lease.proved()
    expect(it.engine.count('extend')).toBe(0)
  })

  test('asks at once when there is doubt, and resolves with the renewal that is proved', async () => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    it.engine.next.extend.push(unknown('no answer'), unknown('still no answer'))
    await it.clock.advance(10_000)
    const proofs = [watched(lease.proved()), watched(lease.proved())]
    await it.clock.advance(1)
    expect(it.engine.count('extend')).toBe(2)
    expect(proofs.map(({ state }) => state)).toEqual(['pending', 'pending'])
    await it.clock.advance(1000)
    expect(it.engine.count('extend')).toBe(3)
    expect(proofs.map(({ state }) => state)).toEqual(['resolved', 'resolved'])
    expect(lease.state).toBe('held')
  })

  test('waits for the renewal that is under way', async () => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    const gate = new Gate()
    it.engine.next.extend.push(async (_leases, pass) => {
      await gate.opened
      return pass()
    })
    await it.clock.advance(16_000)
    const proof = watched(lease.proved())
    await it.clock.advance(10)
    expect([proof.state, it.engine.count('extend')]).toEqual(['pending', 1])
    gate.open()
    await it.clock.advance(0)
    expect(proof.state).toBe('resolved')
  })

  test.each<[string, (it: Bench) => void, string]>([
    ['the engine says that it is gone', (it) => void it.engine.next.extend.unshift(lost), 'stolen'],
    ['nobody answers until its end', () => undefined, 'unreachable'],
    ['its locks are closed', (it) => void it.locks.close(), 'closed'],
  ])('rejects with the loss when %s', async (_what, happens, reason) => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    cutOff(it)
    await it.clock.advance(10_000)
    const proof = watched(lease.proved())
    happens(it)
    await it.clock.advance(30_000)
    expect(proof).toMatchObject({ state: 'rejected', reason: { code: 'LEASE_LOST', reason } })
    await expect(lease.proved()).rejects.toMatchObject({ code: 'LEASE_LOST', reason })
  })

  test('rejects with the reason of its signal, and the lease goes on', async () => {
    const it = bench({ ttl: '30s' })
    const lease = await it.locks.acquire('a')
    cutOff(it)
    await it.clock.advance(10_000)
    const enough = new Error('enough')
    await expect(lease.proved({ signal: AbortSignal.abort(enough) })).rejects.toBe(enough)
    const controller = new AbortController()
    const proof = watched(lease.proved({ signal: controller.signal }))
    await it.clock.advance(10)
    controller.abort(enough)
    await it.clock.advance(0)
    expect(proof).toMatchObject({ state: 'rejected', reason: enough })
    mended(it)
    const next = watched(lease.proved({ signal: new AbortController().signal }))
    await it.clock.advance(1)
    expect([next.state, lease.state]).toEqual(['resolved', 'held'])
  })

  test('refuses what is not a signal', async () => {
    const it = bench()
    const lease = await it.locks.acquire('a')
    await expect(lease.proved({ signal: 5 } as never)).rejects.toThrow('signal: expected an AbortSignal, got 5')
    await expect(lease.proved({ wait: 5 } as never)).rejects.toThrow("options: expected signal, got 'wait'")
  })

  test('that nobody waits for is no unhandled rejection when the lease is lost', async () => {
    const unhandled: unknown[] = []
    const listener = (reason: unknown): void => void unhandled.push(reason)
    process.on('unhandledRejection', listener)
    onTestFinished(() => void process.off('unhandledRejection', listener))
    const it = bench({ ttl: '3s' })
    const lease = await it.locks.acquire('a')
    cutOff(it)
    await it.clock.advance(1000)
    void lease.proved()
    void lease.proved({ signal: new AbortController().signal })
    await it.clock.advance(3000)
    void lease.proved()
    await settled()
    await settled()
    expect([lease.state, unhandled]).toEqual(['over', []])
  })
})

describe('onDoubt: stop', () => {
  test('ends the lease at the first renewal that fails, and releases it', async () => {
    const it = bench({ ttl: '30s', onDoubt: 'stop' })
    const lease = await it.locks.acquire('a')
    const { signal } = lease
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(9999)
    expect(signal.aborted).toBe(false)
    await it.clock.advance(1)
    expect(signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'doubtful', cause: new Error('no answer') })
    expect([lease.state, lease.held, lease.released]).toEqual(['over', false, false])
    expect(it.told().slice(-3)).toEqual(['doubtful', 'lost', 'released'])
    expect(it.events.at(-2)).toMatchObject({ reason: 'doubtful' })
    expect(await it.leases()).toEqual([])
    expect(await lease.release()).toBe(true)
    expect(it.engine.count('release')).toBe(1)
  })

  test('wakes who waits for it in this process', async () => {
    const it = bench({ ttl: '30s', wait: '1h' })
    await it.locks.acquire('a', { onDoubt: 'stop' })
    const next = watched(it.locks.acquire('a'))
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(10_000)
    await it.clock.advance(10)
    expect(next.state).toBe('resolved')
  })

  test('is for the call that says so; others are kept', async () => {
    const it = bench({ ttl: '30s' })
    const [kept, stopped] = [await it.locks.acquire('a'), await it.locks.tryAcquire('b', { onDoubt: 'stop' })]
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(10_000)
    expect([kept.state, stopped!.state]).toEqual(['doubtful', 'over'])
  })

  test('ends an extension that fails in the same way', async () => {
    const it = bench({ ttl: '30s', onDoubt: 'stop' })
    const lease = await it.locks.acquire('a')
    it.engine.next.extend.push(unknown('no answer'))
    await expect(lease.extend('1m')).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'doubtful' })
  })

  test('whose release fails too leaves the lease to its ttl, and nothing unhandled', async () => {
    const unhandled: unknown[] = []
    const listener = (reason: unknown): void => void unhandled.push(reason)
    process.on('unhandledRejection', listener)
    onTestFinished(() => void process.off('unhandledRejection', listener))
    const it = bench({ ttl: '30s', onDoubt: 'stop' })
    await it.locks.acquire('a')
    it.engine.next.extend.push(unknown('no answer'))
    it.engine.next.release.push(fails(new Error('down')))
    await it.clock.advance(10_000)
    expect(it.events.at(-1)).toMatchObject({ type: 'released', ours: 'unknown' })
    await settled()
    await settled()
    expect(unhandled).toEqual([])
    await it.clock.advance(30_000)
    expect(await it.leases()).toEqual([])
  })

  test('in using rejects, and in elect campaigns again', async () => {
    const it = bench({ ttl: '30s', onDoubt: 'stop' })
    const using = watched(
      it.locks.using('a', ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve))),
    )
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(10_000)
    expect(using).toMatchObject({ state: 'rejected', reason: { code: 'LEASE_LOST', reason: 'doubtful' } })
    const terms: bigint[] = []
    const elected = watched(
      it.locks.elect('b', { onDoubt: 'stop' }, async ({ token, signal }) => {
        terms.push(token)
        if (terms.length === 1) await new Promise((resolve) => signal.addEventListener('abort', resolve))
      }),
    )
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(10_010)
    expect(elected.state).toBe('resolved')
    expect(terms).toHaveLength(2)
    expect(terms[1]! > terms[0]!).toBe(true)
  })

  test('does not matter to a lease that is not renewed, nor to a job of once that is done', async () => {
    const it = bench({ ttl: '30s', onDoubt: 'stop' })
    const lease = await it.locks.acquire('a', { renew: false })
    it.engine.next.extend.push(unknown('no answer'), unknown('no answer'))
    await expect(lease.extend()).rejects.toMatchObject({ code: 'ENGINE' })
    expect(lease.state).toBe('held')
    expect(await it.locks.once('b', { atLeast: '10s' }, () => 1)).toEqual({ ran: true, value: 1 })
    expect(it.told()).not.toContain('lost')
    expect(it.events.at(-1)).toMatchObject({ type: 'left', cause: new Error('no answer') })
  })

  test('leaves a job of once taken until atLeast is over', async () => {
    const it = bench({ ttl: '30s', onDoubt: 'stop' })
    const job = watched(
      it.locks.once(
        'a',
        { atLeast: '25s' },
        ({ signal }) => new Promise((end) => signal.addEventListener('abort', end)),
      ),
    )
    it.engine.next.extend.push(unknown('no answer'))
    await it.clock.advance(10_000)
    expect(job).toMatchObject({ state: 'rejected', reason: { reason: 'doubtful' } })
    expect(await it.locks.once('a', {}, () => 1)).toEqual({ ran: false })
    await it.clock.advance(20_000)
    expect(await it.locks.once('a', {}, () => 1)).toEqual({ ran: true, value: 1 })
  })
})
