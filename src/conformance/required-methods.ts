import assert from 'node:assert/strict'
import type { LeaseRef } from '../engine.ts'
import { collect, LONG_TTL_MS, type Cases, type OptionalMethod } from './fixture.ts'
import { OPTIONAL } from './optional-methods.ts'

const METHODS = Object.keys(OPTIONAL) as OptionalMethod[]

/** What every engine does. */
export const REQUIRED: Cases = {
  async 'it has the optional methods that the setup names, and no others'(fixture) {
    const engine = await fixture.engine()
    const present = METHODS.filter((method) => engine[method] !== undefined)
    assert.deepEqual(
      present,
      METHODS.filter((method) => fixture.methods.includes(method)),
    )
  },
  async 'it says what it is: a name, one identity in all processes, what it promises, and its limits'(fixture) {
    const [engine, other] = await fixture.engines()
    const { name, identity, guarantees, limits } = engine
    assert.match(name, /^[a-z][a-z0-9-]*$/)
    assert.notEqual(identity, '')
    assert.equal(other.identity, identity)
    const { exclusion, clock, token, survives, order } = guarantees
    for (const promise of [exclusion, clock, token, survives.serverRestart, survives.failover, order]) {
      assert.ok(typeof promise === 'string' && promise !== '', `expected a promise in words, got ${typeof promise}`)
    }
    assert.ok(limits.maxTtlMs >= LONG_TTL_MS && (limits.minTtlMs ?? 0) <= fixture.shortTtlMs)
    for (const ttlMs of [fixture.shortTtlMs, LONG_TTL_MS]) {
      const driftMs = limits.driftMs(ttlMs)
      assert.ok(driftMs >= 0 && driftMs < ttlMs, `expected a part of ${ttlMs} ms for drift, got ${driftMs}`)
    }
  },
  async 'its guarantees say whether it has shared leases, as the setup does'(fixture) {
    const { guarantees } = await fixture.engine()
    assert.equal(guarantees.shared, fixture.shared)
  },
  async 'a free resource is granted, with a token'(fixture) {
    const engine = await fixture.engine()
    const { token } = await fixture.granted(engine, fixture.request())
    assert.equal(typeof token, 'bigint')
    assert.ok(token > 0n, `expected a positive token, got ${token}`)
  },
  async 'a held resource is refused to others, with the holder and the time left'(fixture) {
    const { two, lease, resources } = await fixture.held()
    await fixture.refusedFor(lease.owner, two, fixture.request({ resources }))
  },
  async 'an acquire that is sent twice for one owner is granted twice, with one token'(fixture) {
    const engine = await fixture.engine()
    const request = fixture.request()
    const first = await fixture.granted(engine, request)
    const second = await fixture.granted(engine, request)
    assert.equal(second.token, first.token)
  },
  async 'only its owner can release a lease, and only once'(fixture) {
    const engine = await fixture.engine()
    const lease = await fixture.lease(engine)
    assert.equal((await engine.release({ ...lease, owner: fixture.owner() })).ours, false)
    await fixture.refused(engine, fixture.request({ resources: lease.resources }))
    assert.equal((await engine.release(lease)).ours, true)
    assert.equal((await engine.release(lease)).ours, false)
  },
  async 'every engine on the same servers can release a lease, for its owner'(fixture) {
    const { one, two, lease } = await fixture.held()
    assert.equal((await two.release(lease)).ours, true)
    assert.deepEqual(await one.extend([lease]), [{ kind: 'lost' }])
    await fixture.granted(two, fixture.request({ resources: lease.resources }))
  },
  async 'a lease with `keepMs` is refused to others, extended and released like any other'(fixture) {
    const [one, two] = await fixture.engines()
    const keepMs = LONG_TTL_MS / 2
    const lease = await fixture.lease(one, { keepMs })
    const { remainingMs = 0 } = await fixture.refused(two, fixture.request({ resources: lease.resources }))
    assert.ok(remainingMs > 0 && remainingMs <= LONG_TTL_MS, `expected its ttl, got ${remainingMs} ms`)
    assert.deepEqual(await one.extend([lease]), [{ kind: 'held' }])
    assert.equal((await one.release(lease)).ours, true)
    await fixture.granted(two, fixture.request({ resources: lease.resources }))
  },
  async 'an attempt in a later round, with others about, is granted what is free and refused what is held'(fixture) {
    const engine = await fixture.engine()
    const hints = { round: 2, contended: true }
    const lease = await fixture.lease(engine, hints)
    const refusal = await fixture.refused(engine, fixture.request({ ...hints, resources: lease.resources }))
    assert.equal(refusal.reason, 'held')
  },
  async 'only its owner can extend a lease, and never one that is gone'(fixture) {
    const engine = await fixture.engine()
    const lease = await fixture.lease(engine)
    assert.deepEqual(await engine.extend([lease]), [{ kind: 'held' }])
    assert.deepEqual(await engine.extend([{ ...lease, owner: fixture.owner() }]), [{ kind: 'lost' }])
    await engine.release(lease)
    assert.deepEqual(await engine.extend([lease]), [{ kind: 'lost' }])
    await fixture.granted(engine, fixture.request({ resources: lease.resources }))
  },
  async 'many leases are extended at once, and the answers come in their order'(fixture) {
    const engine = await fixture.engine()
    const leases: LeaseRef[] = []
    for (let i = 0; i < 12; i++) leases.push(await fixture.lease(engine))
    const gone = leases.filter((_, index) => index === 0 || index % 3 === 1)
    for (const lease of gone) await engine.release(lease)
    const kinds = (await engine.extend(leases)).map(({ kind }) => kind)
    assert.deepEqual(
      kinds,
      leases.map((lease) => (gone.includes(lease) ? 'lost' : 'held')),
    )
  },
  async 'an extension makes a lease last longer than it would have'(fixture) {
    const engine = await fixture.engine()
    const lease = await fixture.lease(engine, { ttlMs: fixture.shortTtlMs })
    assert.deepEqual(await engine.extend([{ ...lease, ttlMs: LONG_TTL_MS }]), [{ kind: 'held' }])
    const refusal = await fixture.refused(engine, fixture.request({ resources: lease.resources }))
    assert.ok((refusal.remainingMs ?? 0) > fixture.shortTtlMs)
  },
  async 'a lease that nobody renews ends, and its late owner can neither extend nor release it'(fixture) {
    const engine = await fixture.engine()
    const late = await fixture.lease(engine, { ttlMs: fixture.shortTtlMs })
    const next = fixture.request({ resources: late.resources })
    const { token } = await fixture.eventuallyGranted(engine, next)
    assert.ok(token > late.token, `expected more than ${late.token}, got ${token}`)
    assert.deepEqual(await engine.extend([late]), [{ kind: 'lost' }])
    assert.equal((await engine.release(late)).ours, false)
    assert.deepEqual(await engine.extend([{ ...next, token }]), [{ kind: 'held' }])
  },
  async 'tokens grow strictly, over releases and over engines'(fixture) {
    const engines = [await fixture.engine(), await fixture.engine()]
    const resources = fixture.request().resources
    let last = 0n
    for (let i = 0; i < 20; i++) {
      const lease = await fixture.lease(engines[i % 2]!, { resources })
      assert.ok(lease.token > last, `expected more than ${last}, got ${lease.token}`)
      last = lease.token
      await engines[i % 2]!.release(lease)
    }
  },
  async 'several resources are granted all or none, with one token above all that came before'(fixture) {
    const engine = await fixture.engine()
    const [a, b, c] = fixture.names(3)
    const blocker = await fixture.lease(engine, { resources: [b!] })
    await fixture.refused(engine, fixture.request({ resources: [a!, b!, c!] }))
    const alone = await fixture.lease(engine, { resources: [c!] })
    await engine.release(alone)
    await engine.release(blocker)
    const all = await fixture.lease(engine, { resources: [a!, b!, c!] })
    assert.ok(all.token > alone.token && all.token > blocker.token)
    for (const resource of [a!, b!, c!]) await fixture.refused(engine, fixture.request({ resources: [resource] }))
    assert.equal((await engine.release(all)).ours, true)
    const after = await fixture.lease(engine, { resources: [a!] })
    assert.ok(after.token > all.token)
  },
  async 'of many who try at the same time, at most one is granted'(fixture) {
    const engines = [await fixture.engine(), await fixture.engine()]
    const resources = fixture.request().resources
    const requests = Array.from({ length: 20 }, () => fixture.request({ resources }))
    const outcomes = await Promise.all(requests.map((request, index) => engines[index % 2]!.acquire(request)))
    const granted = outcomes.filter(({ kind }) => kind === 'granted')
    for (const request of requests) fixture.keep(engines[0]!, { ...request, token: 0n })
    assert.ok(granted.length <= 1, `${granted.length} were granted`)
  },
  async 'inspect shows a lease while it is held, alone and among all'(fixture) {
    const engine = await fixture.engine()
    const lease = await fixture.lease(engine)
    const [resource] = lease.resources
    const [info, ...more] = await collect(engine.inspect(resource))
    assert.deepEqual(more, [])
    assert.ok(info !== undefined, 'expected one lease')
    assert.equal(info.resource, resource)
    assert.equal(info.owner, lease.owner)
    assert.equal(info.token, lease.token)
    assert.ok(info.remainingMs !== undefined && info.remainingMs > 0 && info.remainingMs <= LONG_TTL_MS)
    const all = await collect(engine.inspect())
    assert.equal(all.filter((entry) => entry.resource === resource).length, 1)
    await engine.release(lease)
    assert.deepEqual(await collect(engine.inspect(resource)), [])
  },
  async 'inspect shows every resource of a lease, to other engines too'(fixture) {
    const { two, lease } = await fixture.held({ resources: fixture.names(2) })
    for (const resource of lease.resources) {
      const infos = await collect(two.inspect(resource))
      assert.deepEqual(
        infos.map(({ owner, token }) => ({ owner, token })),
        [{ owner: lease.owner, token: lease.token }],
      )
    }
  },
  async 'names with spaces, braces, quotes and any script are names like others'(fixture) {
    const engine = await fixture.engine()
    const odd = [' x ', '{a}b', 'a}b', '{}', '}{', '{{x}}', `it's "q"`, 'Ω/日本/🚀', '../..', '%00', '*', 'a:b\\c']
    for (const name of odd) {
      const resources = [`${fixture.request().resources[0]}${name}`]
      const lease = await fixture.lease(engine, { resources })
      await fixture.refused(engine, fixture.request({ resources }))
      assert.deepEqual(
        (await collect(engine.inspect(resources[0]))).map(({ owner }) => owner),
        [lease.owner],
      )
      assert.equal((await engine.release(lease)).ours, true)
    }
  },
  async 'the doctor answers, each finding with a meaning'(fixture) {
    const engine = await fixture.engine()
    const findings = await engine.check(LONG_TTL_MS)
    assert.ok(findings.length > 0)
    for (const { id, severity, found, meaning, remedy } of findings) {
      assert.match(id, /^[a-z-]+\/[a-z0-9-]+$/)
      assert.ok(['ok', 'note', 'warning', 'critical'].includes(severity), `${id}: severity ${severity}`)
      assert.ok(found !== '' && meaning !== '' && remedy !== '', `${id}: expected text, got none`)
    }
  },
}
