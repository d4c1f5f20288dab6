import { describe, expect, test } from 'vitest'
import type { AdoptedGrant, Extension, LeaseRef } from '../../src/engine.ts'
import { EngineError, LeaseLostError } from '../../src/errors.ts'
import type { Lease, LeaseJson } from '../../src/lease.ts'
import { fails, Gate, unknown } from '../../harness/scripted-engine.ts'
import { whoIs } from '../../src/owner.ts'
import { bench, neighbour } from './bench.ts'

/** As it comes from another process. */
function sent(json: LeaseJson): LeaseJson {
  return JSON.parse(JSON.stringify(json)) as LeaseJson
}

describe('handOff', () => {
  test('ends the lease here as moved, with a last extension, and asks the servers for nothing more', async () => {
    const { clock, engine, locks, events } = bench({ ttl: '10s' })
    const lease = await locks.acquire('a')
    await clock.advance(2000)
    const ticket = await lease.handOff()
    expect(ticket).toEqual({
      resources: ['a'],
      owner: lease.owner,
      token: String(lease.token),
      engine: 'memory',
      shared: false,
      held: true,
      remainingMs: 10_000,
      ttlMs: 10_000,
    })
    expect(lease.moved).toBe(true)
    expect(lease.held).toBe(false)
    expect(lease.signal.reason).toMatchObject({ reason: 'moved', message: /handed off to another process/ })
    expect(lease.toJSON()).toMatchObject({ held: false, over: 'moved' })
    expect(await lease.release()).toBe(false)
    await locks.close()
    expect(engine.ops).toEqual(['acquire', 'extend', 'close'])
    expect(events.at(-1)).toMatchObject({ type: 'moved', owner: lease.owner, heldMs: 2000 })
  })

  test('waits for a renewal under way, which would bind the lease to this process again', async () => {
    const { clock, engine, locks } = bench({ ttl: '9s' })
    const lease = await locks.acquire('a')
    const gate = new Gate()
    engine.next.extend.push(async (_leases, pass) => {
      await gate.opened
      return pass()
    })
    await clock.advance(3000)
    const moving = lease.handOff()
    await clock.advance(1000)
    expect(engine.count('extend')).toBe(1)
    gate.open()
    await moving
    expect(engine.count('extend')).toBe(2)
  })

  test('of a lease that was taken away rejects as stolen', async () => {
    const { engine, locks } = bench()
    const lease = await locks.acquire('a')
    await engine.inner.release({ resources: ['a'], owner: lease.owner, token: lease.token, ttlMs: 1 })
    await expect(lease.handOff()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'stolen' })
    expect(lease.toJSON().over).toBe('stolen')
  })

  test('of a lease that is over says why', async () => {
    const { clock, locks } = bench({ ttl: '9s' })
    const lease = await locks.acquire('a', { maxHold: '2s' })
    // The clock is ahead of the timer that ends it.
    clock.pass(3000)
    await expect(lease.handOff()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'max-hold' })
  })

  test('that cannot be proved rejects, and the lease goes on here as before', async () => {
    const { clock, engine, locks } = bench({ ttl: '9s' })
    const lease = await locks.acquire('a')
    engine.next.extend.push(unknown('no answer'))
    await expect(lease.handOff()).rejects.toThrow(new EngineError('could not hand off: no answer', ['a']))
    expect(lease.held).toBe(true)
    await clock.advance(60_000)
    expect(lease.held).toBe(true)
    await lease.handOff()
    expect(lease.moved).toBe(true)
  })

  test.each([
    ['by an extension', undefined],
    ['by a step of its own', async (): Promise<Extension> => ({ kind: 'unknown', cause: new Error('no answer') })],
  ])(
    'whose outcome is unknown may come after a later extension, %s: nothing beyond it is counted on',
    async (_how, leave) => {
      const { engine, locks } = bench({ ttl: '9s' }, leave === undefined ? {} : { leave })
      const lease = await locks.acquire('a')
      engine.next.extend.push(...(leave === undefined ? [unknown('no answer')] : []))
      await expect(lease.handOff()).rejects.toThrow(new EngineError('could not hand off: no answer', ['a']))
      await lease.extend('1m')
      expect(lease.remaining()).toBe(9000)
    },
  )

  test('that is under way keeps an extension waiting, which it would shorten', async () => {
    const gate = new Gate()
    const leave = async (): Promise<Extension> => {
      await gate.opened
      return { kind: 'unknown', cause: new Error('no answer') }
    }
    const { clock, engine, locks } = bench({ ttl: '9s' }, { leave })
    const lease = await locks.acquire('a')
    const both = Promise.allSettled([lease.handOff(), lease.extend('1m')])
    await clock.advance(0)
    expect(engine.count('extend')).toBe(0)
    gate.open()
    await both
    expect(lease.remaining()).toBe(9000)
  })

  test('of a lease that is over says why it is', async () => {
    const { locks } = bench()
    const lease = await locks.acquire('a')
    await lease.release()
    await expect(lease.handOff()).rejects.toMatchObject({ reason: 'released' })
    const other = await locks.acquire('b')
    await other.handOff()
    await expect(other.handOff()).rejects.toMatchObject({ reason: 'moved' })
  })

  test('that is overtaken by a release or a close gives no ticket', async () => {
    const { engine, locks } = bench()
    for (const [name, end, reason] of [
      ['a', (lease: Lease): unknown => lease.release(), 'released'],
      ['b', (): unknown => locks.close(), 'closed'],
    ] as const) {
      const lease = await locks.acquire(name)
      const gate = new Gate()
      engine.next.extend.push(async (_leases, pass) => {
        await gate.opened
        return pass()
      })
      const moving = lease.handOff().catch((error: unknown) => error)
      const ending = end(lease)
      gate.open()
      await ending
      expect(await moving).toMatchObject({ reason })
    }
  })

  test('of a shared lease, of an engine without hand-over, and of a job within its atLeast is refused', async () => {
    const shared = await bench().locks.acquire('a', { shared: true })
    await expect(shared.handOff()).rejects.toThrow(
      /^lease.shared: expected false, got true; a shared lease need not move/,
    )
    const none = await bench({}, { handOver: false }).locks.acquire('a')
    await expect(none.handOff()).rejects.toThrow(/^engine: expected one whose leases can move to another process, got /)
    const job = bench().locks.once('a', { atLeast: '1m' }, (lease) => lease.handOff())
    await expect(job).rejects.toThrow(/^handOff: expected a lease that may end, got that of a job of `once`/)
  })

  test('within using and elect ends them with their result', async () => {
    const { locks, engine } = bench()
    const ticket = await locks.using('a', (lease) => lease.handOff())
    expect(ticket.held).toBe(true)
    expect(await locks.elect('b', async (lease) => (await lease.handOff()).resources)).toEqual(['b'])
    expect(engine.count('release')).toBe(0)
  })
})

describe('adopt', () => {
  test('a permit of a semaphore stays taken; its number is in its name only', async () => {
    const here = bench()
    const { locks } = here
    const ticket = sent(await (await locks.semaphore('gpu', 1).acquire()).handOff())
    const lease = await neighbour(here).adopt(ticket)
    expect(lease.resources).toEqual(['gpu#0'])
    expect(lease).not.toHaveProperty('permit')
    expect(await locks.semaphore('gpu', 1).tryAcquire()).toBeNull()
    await lease.release()
    expect(await locks.semaphore('gpu', 1).tryAcquire()).toHaveProperty('permit', 0)
  })

  test('makes the lease this process’s, with a new owner and token, renews it and releases it', async () => {
    const it = bench({ ttl: '9s', label: 'worker' })
    const { clock, locks, events } = it
    const other = neighbour(it)
    const first = await other.acquire('a', { ttl: '12s', note: 'invoice 42' })
    const lease = await locks.adopt(sent(await first.handOff()), { maxHold: '1m' })
    expect(lease.token).toBeGreaterThan(first.token)
    expect(lease.owner).toMatch(/@worker \(invoice 42\)$/)
    expect(lease.note).toBe('invoice 42')
    expect(lease.remaining()).toBe(12_000)
    expect(events.map(({ type }) => type)).toEqual(['asked', 'attempt', 'granted'])
    await clock.advance(30_000)
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    expect(await other.tryAcquire('a')).not.toBeNull()
  })

  test('of a lease that was not handed off ends it for its holder at the next renewal, as stolen', async () => {
    const it = bench({ ttl: '9s' })
    const { clock, locks } = it
    const first = await neighbour(it).acquire('a', { ttl: '9s' })
    const lease = await locks.adopt(sent(first.toJSON()))
    await clock.advance(3500)
    expect(first.toJSON()).toMatchObject({ held: false, over: 'stolen' })
    expect(lease.held).toBe(true)
  })

  test('of one ticket succeeds once', async () => {
    const it = bench()
    const { locks } = it
    const ticket = sent(await (await neighbour(it).acquire('a')).handOff())
    const outcomes = await Promise.allSettled([locks.adopt(ticket), locks.adopt(ticket), locks.adopt(ticket)])
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected'])
    const { value: lease } = outcomes[0] as PromiseFulfilledResult<Lease>
    await expect(locks.adopt(ticket)).rejects.toMatchObject({
      code: 'LEASE_LOST',
      reason: 'gone',
      message: expect.stringMatching(`is over: ${whoIs(lease.owner)} has it now, which adopted it before`) as string,
    })
    await lease.release()
    await expect(locks.adopt(ticket)).rejects.toMatchObject({
      reason: 'expired',
      message: expect.stringMatching(
        'nobody has it now: its time was up before it was adopted, it was adopted and released already, or the ticket is of',
      ) as string,
    })
  })

  test('of a lease that ran out, or was over when it was written, rejects as lost', async () => {
    const it = bench({ ttl: '9s' })
    const { clock, engine, locks, events } = it
    const first = await neighbour(it).acquire('a', { ttl: '9s' })
    const ticket = sent(await first.handOff())
    await clock.advance(9001)
    await expect(locks.adopt(ticket)).rejects.toThrow(LeaseLostError)
    expect(events.at(-1)).toMatchObject({ type: 'denied', reason: 'failed' })
    const before = engine.calls.length
    await expect(locks.adopt(sent(first.toJSON()))).rejects.toMatchObject({ reason: 'moved' })
    expect(engine.calls.length).toBe(before)
  })

  test('that the engine fails rejects with its error; one that was granted too late, or after a close, is given back', async () => {
    const it = bench({ ttl: '9s' })
    const { clock, engine, locks } = it
    const ticket = async (name: string): Promise<LeaseJson> => {
      return sent(await (await neighbour(it).acquire(name, { ttl: '9s' })).handOff())
    }
    engine.next.handOver.push(fails(new EngineError('no answer', ['a'])))
    await expect(locks.adopt(await ticket('a'))).rejects.toThrow('no answer')
    for (const [name, then, error] of [
      ['b', (): unknown => clock.pass(8500), /granted too late/],
      ['c', (): unknown => locks.close(), /closed/],
    ] as const) {
      const lease = await ticket(name)
      engine.next.handOver.push(async (_call, pass) => {
        const outcome = await pass()
        void then()
        return outcome
      })
      await expect(locks.adopt(lease)).rejects.toThrow(error)
      expect(await neighbour(it).tryAcquire(name)).toBeNull()
      expect((await neighbour(it).adopt(lease)).held).toBe(true)
    }
    await expect(locks.adopt(await ticket('d'))).rejects.toThrow(/closed/)
  })

  test('with a shorter ttl that is granted too late leaves the lease to a holder that goes on, for the time that it counts on', async () => {
    const it = bench()
    const { clock, engine, locks } = it
    const [holder, rival] = [neighbour(it), neighbour(it)]
    const lease = await holder.acquire('a', { ttl: '60s' })
    engine.next.handOver.push(async (_call, pass) => {
      const outcome = await pass()
      clock.pass(950)
      return outcome
    })
    await expect(locks.adopt(sent(lease.toJSON()), { ttl: '1s' })).rejects.toThrow('granted too late')
    await clock.advance(15_000)
    expect(lease.held).toBe(true)
    expect(await rival.tryAcquire('a')).toBeNull()
    await clock.advance(60_000)
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
  })

  test('of a ticket of another server with an engine of the same identity changes nothing there, and says so', async () => {
    const [here, there] = [bench(), neighbour(bench())]
    const lease = await there.acquire('a')
    const ticket = sent(await lease.handOff())
    await expect(here.locks.adopt(ticket)).rejects.toThrow(
      "or the ticket is of another server or database whose engine is 'memory' as well",
    )
    await using other = await here.locks.acquire('a')
    await expect(here.locks.adopt(ticket)).rejects.toMatchObject({ reason: 'gone' })
    expect(other.held).toBe(true)
    expect((await there.adopt(ticket)).held).toBe(true)
  })

  test('keeps the owner and the token where the engine says so', async () => {
    const it = bench({}, { handOver: false })
    const { engine, locks } = it
    const adopt = async (lease: LeaseRef): Promise<AdoptedGrant> => {
      await engine.inner.extend([lease])
      return { kind: 'granted', token: lease.token, owner: lease.owner }
    }
    Object.assign(engine, { adopt })
    const first = await neighbour(it).acquire('a')
    const ticket = sent(first.toJSON())
    const lease = await locks.adopt(ticket)
    expect([lease.owner, lease.token]).toEqual([first.owner, first.token])
    await lease.release()
    expect(await locks.tryAcquire('a')).not.toBeNull()
  })

  test.each([
    [undefined, TypeError, /^lease: expected an object, got undefined$/],
    [
      '{}',
      TypeError,
      /^lease: expected the object that handOff\(\) or toJSON\(\) gave, got '{}'; JSON.parse it first$/,
    ],
    [{ resources: 'a' }, TypeError, /^lease.resources: expected an array of names, .* got 'a'$/],
    [{ resources: [1] }, TypeError, /^resource: expected a string, got 1; write '1'$/],
    [{ resources: [] }, RangeError, /^resource: expected 1 to 100 names, got 0$/],
    [{ owner: '' }, TypeError, /^lease.owner: expected the owner as a string, .* got ''$/],
    [{ token: 7 }, TypeError, /^lease.token: expected decimal digits as a string, .* got 7$/],
    [{ token: '-7' }, TypeError, /^lease.token: /],
    [{ engine: undefined }, TypeError, /^lease.engine: expected the identity of an engine/],
    [
      { engine: 'redis:' },
      RangeError,
      /^lease.engine: expected 'memory', .* got 'redis:'; adopt it with locks of that engine$/,
    ],
    [{ shared: undefined }, TypeError, /^lease.shared: expected true or false/],
    [{ shared: true }, RangeError, /^lease.shared: expected false, got true; a shared lease need not move/],
    [
      { held: false, over: 'banana' },
      TypeError,
      /^lease.over: expected stolen, .*, closed or nothing, got 'banana'; give adopt what handOff\(\) or toJSON\(\) gave/,
    ],
    [{ over: 5 }, TypeError, /^lease.over: expected stolen, .* got 5;/],
    [
      { over: 'expired' },
      TypeError,
      /^lease.over: expected none, because lease.held is true, got 'expired'; give adopt/,
    ],
    [{ held: 'yes' }, TypeError, /^lease.held: expected true or false/],
    [{ ttlMs: 0.5 }, TypeError, /^lease.ttlMs: expected a number of milliseconds/],
    [{ ttlMs: 5 }, RangeError, /^ttl: expected at least 50 ms, got 5$/],
  ])('refuses %j before it asks a server', async (wrong, error, message) => {
    const { engine, locks } = bench()
    const good = { resources: ['a'], owner: 'x', token: '1', engine: 'memory', shared: false, held: true, ttlMs: 9000 }
    const json = typeof wrong === 'object' ? { ...good, ...wrong } : wrong
    const adopting = locks.adopt(json as never)
    await expect(adopting).rejects.toThrow(error)
    await expect(adopting).rejects.toThrow(message)
    expect(engine.calls).toEqual([])
  })

  test('takes the options of a lease, without shared and wait', async () => {
    const { locks } = bench()
    const ticket = await (await locks.acquire('a')).handOff()
    for (const options of [{ shared: true }, { wait: 0 }])
      await expect(locks.adopt(ticket, options as never)).rejects.toThrow(
        /^options: expected ttl, renew, maxHold, onDoubt, note/,
      )
    const lease = await locks.adopt(ticket, { ttl: '5s', renew: false, note: 'again' })
    expect([lease.remaining(), lease.note]).toEqual([5000, 'again'])
  })
})

describe('stopRenewing', () => {
  test('lets the lease run out by itself', async () => {
    const { clock, engine, locks, events } = bench({ ttl: '9s' })
    const lease = await locks.acquire('a')
    await clock.advance(4000)
    expect(engine.count('extend')).toBe(1)
    lease.stopRenewing()
    const leftMs = lease.remaining()
    await clock.advance(leftMs - 500)
    expect(lease.held).toBe(true)
    await clock.advance(500)
    expect(lease.toJSON()).toMatchObject({ held: false, over: 'expired' })
    expect(engine.count('extend')).toBe(1)
    expect(events.at(-1)).toMatchObject({ type: 'lost', reason: 'expired' })
  })

  test('leaves extend and release as they are', async () => {
    const { clock, engine, locks } = bench({ ttl: '9s' })
    const lease = await locks.acquire('a')
    lease.stopRenewing()
    await clock.advance(5000)
    await lease.extend()
    await clock.advance(5000)
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    expect(engine.ops).toEqual(['acquire', 'extend', 'release'])
  })
})
