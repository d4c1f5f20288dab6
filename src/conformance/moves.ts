import assert from 'node:assert/strict'
import type { LeaseInfo } from '../engine.ts'
import type { LeaseJson } from '../lease.ts'
import { collect, LONG_TTL_MS, type Cases } from './fixture.ts'

/** What `adopt` of an engine does. */
export const ADOPT: Cases = {
  async 'adopt gives the lease a new owner and a higher token in one step, or leaves it both'(fixture) {
    const { one: engine, two: other, lease } = await fixture.held({ resources: fixture.names(2) })
    const next = fixture.request({ resources: lease.resources, ttlMs: LONG_TTL_MS / 2 })
    const outcome = await other.adopt!(lease, next)
    assert.equal(outcome.kind, 'granted')
    const { token, owner = next.owner } = outcome
    fixture.keep(other, { ...next, owner, token })
    assert.equal(token > lease.token, owner !== lease.owner)
    assert.deepEqual(await engine.extend([lease]), [{ kind: owner === lease.owner ? 'held' : 'lost' }])
    assert.deepEqual(await other.extend([{ ...next, owner, token }]), [{ kind: 'held' }])
    for (const resource of lease.resources) {
      const [info] = await collect(engine.inspect(resource))
      assert.deepEqual([info?.owner, info?.token], [owner, token])
      await fixture.refused(engine, fixture.request({ resources: [resource] }))
    }
  },
  async 'adopt refuses a lease that is gone, and one of another owner'(fixture) {
    const engine = await fixture.engine()
    const lease = await fixture.lease(engine)
    const next = fixture.request({ resources: lease.resources })
    fixture.keep(engine, { ...next, token: 0n })
    await engine.release(lease)
    assert.equal((await engine.adopt!(lease, next)).kind, 'refused')
    assert.deepEqual(await collect(engine.inspect(lease.resources[0])), [])
    const other = await fixture.lease(engine, { resources: lease.resources })
    assert.equal((await engine.adopt!(lease, next)).kind, 'refused')
    assert.deepEqual(await engine.extend([other]), [{ kind: 'held' }])
  },
  async 'adopt by two at once leaves one owner with one token'(fixture) {
    const { one: engine, two: other, lease, resources } = await fixture.held()
    const heirs = [fixture.request({ resources }), fixture.request({ resources })] as const
    for (const heir of heirs) fixture.keep(engine, { ...heir, token: 0n })
    const outcomes = await Promise.all([engine.adopt!(lease, heirs[0]), other.adopt!(lease, heirs[1])])
    const granted = outcomes.flatMap((outcome, index) =>
      outcome.kind === 'granted' ? [{ owner: heirs[index]!.owner, ...outcome }] : [],
    )
    assert.ok(granted.length > 0, 'none was granted')
    const held = await collect(engine.inspect(resources[0]))
    for (const grant of granted) assert.deepEqual(held.map(ownerAndToken), [ownerAndToken(grant)])
  },
}

/** What the locks of an engine do that can move leases. */
export const MOVES: Cases = {
  async 'a lease that was handed off keeps others out and is adopted, although the locks of its process are closed'(
    fixture,
  ) {
    const { one, two } = await fixture.rivals()
    const resources = fixture.names(2)
    const lease = await one.acquire(resources, { note: 'invoice 42' })
    const ticket = JSON.parse(JSON.stringify(await lease.handOff())) as LeaseJson
    assert.deepEqual([lease.held, lease.moved, lease.signal.aborted], [false, true, true])
    assert.equal(await lease.release(), false)
    await one.close()
    assert.equal(await two.tryAcquire(resources[0]!), null)
    const adopted = await two.adopt(ticket)
    assert.deepEqual([adopted.resources, adopted.note, adopted.held], [resources, 'invoice 42', true])
    await adopted.extend()
    assert.equal(await two.tryAcquire(resources[1]!), null)
    assert.equal(await adopted.release(), true)
    await using next = await two.tryAcquire(resources)
    assert.ok(next !== null && next.token > adopted.token)
  },
  async 'a lease that is over is not adopted, neither while it is free nor while someone else has it'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const lease = await one.acquire(name)
    const json = lease.toJSON()
    await lease.release()
    await assert.rejects(two.adopt(json), { code: 'LEASE_LOST', reason: 'expired' })
    await using next = await one.acquire(name)
    await assert.rejects(two.adopt(json), { code: 'LEASE_LOST', reason: 'gone' })
    await next.extend()
  },
}

/** The same where there are shared leases, too. */
export const MOVES_BESIDE_READERS: Cases = {
  async 'a lease that several share is not adopted alone, whatever its ticket says, and stays with those who have it'(
    fixture,
  ) {
    const { one, two } = await fixture.rivals()
    for (const count of [1, 2]) {
      const names = fixture.names(count)
      for (const alone of [false, true]) {
        await using reader = await one.acquire(names, { shared: true })
        await using other = alone ? undefined : await two.acquire(names, { shared: true })
        const changed = { ...reader.toJSON(), shared: false }
        await assert.rejects(two.adopt(changed), { name: 'RangeError', message: /^lease\.shared: expected true, / })
        for (const lease of [reader, other]) await lease?.extend()
        assert.equal(await two.tryAcquire(names), null)
      }
      await using writer = await two.tryAcquire(names)
      assert.ok(writer !== null)
    }
  },
}

function ownerAndToken({ owner, token }: Pick<LeaseInfo, 'owner' | 'token'>): unknown[] {
  return [owner, token]
}
