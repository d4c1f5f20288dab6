import assert from 'node:assert/strict'
import { sleep, systemClock } from '../clock.ts'
import type { Lease } from '../lease.ts'
import type { Locks } from '../locks.ts'
import { collect, LONG_TTL_MS, type Cases } from './fixture.ts'

/** What the locks of every engine do. */
export const WITH_LOCKS: Cases = {
  async 'tryAcquire gives null when someone else has it'(fixture) {
    const { one, two, name } = await fixture.rivals()
    await using lease = await one.tryAcquire(name)
    assert.ok(lease?.held)
    assert.equal(await two.tryAcquire(name), null)
  },
  async 'tryAcquire with a wait gives null when that is over, and the lease when it is free before'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const first = await one.acquire(name)
    // The engine must have answered within the wait: an answer that never came is not a resource that is busy.
    await fixture.eventually('an answer within the wait', async () => {
      const answer = await two.tryAcquire(name, { wait: fixture.shortTtlMs }).catch((error: Error) => error)
      return answer === null
    })
    const trying = two.tryAcquire(name, { wait: '20s' })
    assert.equal(await first.release(), true)
    await using second = await trying
    assert.ok(second !== null && second.token > first.token)
  },
  async 'a waiter gets the resource after its release, with a higher token'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const first = await one.acquire(name)
    const waiting = two.acquire(name, { wait: '20s' })
    assert.equal(await first.release(), true)
    await using second = await waiting
    assert.ok(second.token > first.token)
    assert.equal(first.held, false)
    assert.equal(second.held, true)
  },
  async 'an aborted wait rejects with its reason and leaves nothing behind'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const first = await one.acquire(name)
    const controller = new AbortController()
    const waiting = two.acquire(name, { wait: '20s', signal: controller.signal })
    const reason = new Error('changed my mind')
    controller.abort(reason)
    await assert.rejects(waiting, reason)
    await first.release()
    // An attempt that was under way when the wait was aborted is undone behind the caller's back.
    await fixture.eventually(
      'the resource to be free',
      async () => (await (await one.tryAcquire(name))?.release()) === true,
    )
  },
  async 'critical sections of many waiters never overlap, and their tokens grow'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const tokens: bigint[] = []
    let inside = 0
    let most = 0
    const section = async (locks: Locks): Promise<void> => {
      await locks.using(name, { wait: '50s' }, async (lease) => {
        inside++
        most = Math.max(most, inside)
        tokens.push(lease.token)
        await sleep(systemClock, 1)
        inside--
      })
    }
    await Promise.all(Array.from({ length: 30 }, (_, index) => section(index % 2 === 0 ? one : two)))
    assert.equal(most, 1)
    assert.equal(tokens.length, 30)
    for (const [index, token] of tokens.entries()) assert.ok(index === 0 || token > tokens[index - 1]!)
  },
  async 'a reentrant call has the lease around it, and others get it only when the outer work is done'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const reentrant = true
    const token = await one.using(name, { reentrant }, async (outer) => {
      const inner = await one.using(name, { reentrant }, (lease) => lease.token)
      assert.equal(inner, outer.token)
      assert.equal(outer.held, true)
      assert.equal(await two.tryAcquire(name), null)
      return inner
    })
    await using next = await two.acquire(name, { wait: '20s' })
    assert.ok(next.token > token)
  },
  async 'a semaphore never has more holders than permits, each with a permit of its own, and serves all'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const [ours, theirs] = [one.semaphore(name, 3), two.semaphore(name, 3)]
    const held = [await ours.acquire(), await theirs.acquire(), await ours.acquire()]
    assert.equal(new Set(held.map(({ permit }) => permit)).size, 3)
    assert.equal(await theirs.tryAcquire(), null)
    const inside = new Set<number>()
    let most = 0
    const section = async (pool: typeof ours): Promise<void> => {
      await pool.using({ wait: '50s' }, async ({ permit, token }) => {
        assert.ok(held.every((before) => before.permit !== permit || token > before.token))
        assert.equal(inside.has(permit), false)
        inside.add(permit)
        most = Math.max(most, inside.size)
        await sleep(systemClock, 1)
        inside.delete(permit)
      })
    }
    const served = Array.from({ length: 30 }, (_, index) => section(index % 2 === 0 ? ours : theirs))
    for (const lease of held) assert.equal(await lease.release(), true)
    await Promise.all(served)
    assert.ok(most <= 3)
  },
  async 'a lease is renewed while it is held'(fixture) {
    const locks = await fixture.locks()
    const name = fixture.name()
    await using lease = await locks.acquire(name, { ttl: fixture.shortTtlMs * 3 })
    const until = systemClock.monotonicMs() + fixture.shortTtlMs * 5
    await fixture.eventually('the first ttl to be over', () => systemClock.monotonicMs() > until)
    assert.equal(lease.held, true)
    assert.equal(lease.signal.aborted, false)
  },
  async 'a lease whose renewal has no answer is in doubt and held, until the next renewal proves it'(fixture) {
    const [{ locks, doubt }, other] = [await fixture.doubtfulLocks(), await fixture.locks()]
    const name = fixture.name()
    const lease = await locks.acquire(name)
    await lease.proved()
    assert.equal(lease.state, 'held')
    doubt()
    await assert.rejects(lease.extend(), { code: 'ENGINE' })
    assert.deepEqual([lease.state, lease.held, lease.signal.aborted], ['doubtful', true, false])
    assert.equal(await other.tryAcquire(name), null)
    await lease.proved()
    assert.equal(lease.state, 'held')
    // It can still be extended, and given back, by hand.
    lease.stopRenewing()
    await lease.extend()
    assert.equal(await lease.release(), true)
    assert.equal(lease.state, 'over')
    await assert.rejects(lease.proved(), { code: 'LEASE_LOST', reason: 'released' })
  },
  async 'a lease that is to stop in doubt is given back at the first renewal that has no answer'(fixture) {
    const [{ locks, doubt }, other] = [await fixture.doubtfulLocks(), await fixture.locks()]
    const name = fixture.name()
    const lease = await locks.acquire(name, { onDoubt: 'stop' })
    doubt()
    await assert.rejects(lease.extend(), { code: 'LEASE_LOST', reason: 'doubtful' })
    assert.deepEqual([lease.state, lease.signal.aborted], ['over', true])
    await using next = await other.acquire(name, { wait: '20s' })
    assert.ok(next.token > lease.token)
  },
  async 'a lease is held no longer than it may be, and can be given back after that'(fixture) {
    const locks = await fixture.locks()
    const name = fixture.name()
    const lease = await locks.acquire(name, { maxHold: 50 })
    await fixture.eventually('the end of its time', () => lease.signal.aborted)
    assert.deepEqual([lease.state, lease.toJSON().over], ['over', 'max-hold'])
    assert.equal(await lease.release(), true)
  },
  async 'a leader whose campaign is ended keeps its lease until its work has settled; only then another one leads'(
    fixture,
  ) {
    const { one, two, name } = await fixture.rivals()
    const controller = new AbortController()
    const reason = new Error('shutting down')
    const steps: string[] = []
    const first = one.elect(name, { signal: controller.signal }, async (lease) => {
      steps.push('leads')
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
      assert.equal(lease.signal.reason, reason)
      // Long enough for a waiter that was woken, or that polls.
      await sleep(systemClock, fixture.shortTtlMs)
      assert.equal(lease.held, true)
      steps.push('has settled')
    })
    const ended = assert.rejects(first, reason)
    await fixture.eventually('the first one to lead', () => steps.length === 1)
    const second = two.elect(name, () => steps.push('leads next'))
    controller.abort(reason)
    await ended
    await second
    assert.deepEqual(steps, ['leads', 'has settled', 'leads next'])
  },
  async 'work whose lease was ended by someone else has no result, also if only its release can find out'(fixture) {
    const [locks, engine] = [await fixture.locks(), await fixture.engine()]
    const work = async ({ resources, owner, token }: Lease): Promise<string> => {
      assert.equal((await engine.release({ resources, owner, token, ttlMs: LONG_TTL_MS })).ours, true)
      await fixture.eventuallyGranted(engine, fixture.request({ resources }))
      return 'done alone'
    }
    const [name, job] = fixture.names(2)
    await assert.rejects(locks.using(name!, work), { code: 'LEASE_LOST' })
    await assert.rejects(locks.once(job!, { atLeast: fixture.shortTtlMs }, work), { code: 'LEASE_LOST' })
  },
  async 'a job that is done early is not run again before `atLeast` is over, and is run after it'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const atLeast = fixture.shortTtlMs * 2
    const starts: number[] = []
    const job = (): number => starts.push(systemClock.monotonicMs())
    assert.deepEqual(await one.once(name, { atLeast }, job), { ran: true, value: 1 })
    const [left] = await collect(two.inspect(name))
    // What is left is a part of atLeast; servers round it up, or take up to as long again. It is not the whole ttl.
    assert.ok((left?.remainingMs ?? 0) <= 3 * atLeast, `expected ${atLeast} ms or less, got ${left?.remainingMs}`)
    await fixture.eventually('the job to run again', async () => (await two.once(name, { atLeast }, job)).ran)
    const afterMs = starts[1]! - starts[0]!
    // Two clocks that round to whole milliseconds may differ by as much.
    assert.ok(afterMs >= atLeast - 2, `ran again after ${afterMs} ms of ${atLeast}`)
  },
  async 'closing the locks in the middle of a job keeps others from it until `atLeast` is over'(fixture) {
    const [one, two, engine] = [await fixture.locks(), await fixture.locks(), await fixture.engine()]
    const name = fixture.name()
    let held: Lease | undefined
    const job = one.once(name, { atLeast: '15s' }, async (lease) => {
      held = lease
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
    })
    const ended = assert.rejects(job, { code: 'LEASE_LOST', reason: 'closed' })
    await fixture.eventually('the job to begin', () => Promise.resolve(held !== undefined))
    await one.close()
    await ended
    assert.deepEqual(await two.once(name, {}, () => 'too soon'), { ran: false })
    // Nobody need wait for what the case has shown.
    const { resources, owner, token } = held!
    await engine.release({ resources, owner, token, ttlMs: LONG_TTL_MS })
  },
  async 'everyone sees who holds a resource and for what, and can end that very lease'(fixture) {
    const { one, two, name } = await fixture.rivals()
    assert.equal(await two.status(name), null)
    const note = `invoice 42/7f3a (100 %, "ü" & 漢字) \\ 'x'; ${'語'.repeat(100)}`
    const lease = await one.acquire(name, { note })
    const status = await two.status(name)
    assert.deepEqual(
      status?.holders.map((info) => [info.resource, info.owner, info.token, info.note]),
      [[name, lease.owner, lease.token, note]],
    )
    await lease.extend()
    assert.equal(await two.forceRelease(name, { token: lease.token + 1n }), false)
    assert.equal(await two.forceRelease(name, { token: lease.token }), true)
    await assert.rejects(lease.extend(), { code: 'LEASE_LOST', reason: 'stolen' })
    let next: Lease | null = null
    await fixture.eventually('the next one to get it', async () => (next = await two.tryAcquire(name)) !== null)
    assert.equal(await one.forceRelease(name, { token: lease.token }), false)
    assert.equal(await next!.release(), true)
  },
  async 'closing the locks releases their leases'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const lease = await one.acquire(name)
    await one.close()
    assert.equal(lease.held, false)
    await using next = await two.tryAcquire(name)
    assert.ok(next !== null)
  },
}
