import assert from 'node:assert/strict'
import { sleep, systemClock } from '../clock.ts'
import type { Engine, LeaseRef, LeaseRequest } from '../engine.ts'
import { collect, LONG_TTL_MS, type Cases, type Fixture } from './fixture.ts'
import { enqueue } from './optional-methods.ts'

/** What an engine does that has shared leases: many readers, or one writer. */
export const SHARED: Cases = {
  async 'two readers hold a resource at once, from two engines'(fixture) {
    const { one, two, lease: first } = await fixture.held({ shared: true })
    const second = await reader(fixture, two, { resources: first.resources })
    assert.deepEqual(await one.extend([first]), [{ kind: 'held' }])
    assert.deepEqual(await two.extend([second]), [{ kind: 'held' }])
  },
  async 'a writer is refused while a reader holds, with a holder and a time after which to try again'(fixture) {
    const { two, lease, resources } = await fixture.held({ shared: true })
    for (const waits of [false, true]) await fixture.refusedFor(lease.owner, two, fixture.request({ resources, waits }))
  },
  async 'readers are refused while a writer holds, with the holder and the time left'(fixture) {
    const { one, two, lease, resources } = await fixture.held()
    for (const engine of [one, two])
      await fixture.refusedFor(lease.owner, engine, fixture.request({ resources, shared: true }))
  },
  async 'the last release of a reader lets a writer in, and no earlier one does'(fixture) {
    const { one, two, lease: first, resources } = await fixture.held({ shared: true })
    const second = await reader(fixture, two, { resources })
    assert.equal((await one.release(first)).ours, true)
    assert.equal((await one.release(first)).ours, false)
    await fixture.refused(one, fixture.request({ resources }))
    assert.deepEqual(await two.extend([second]), [{ kind: 'held' }])
    assert.equal((await two.release(second)).ours, true)
    await fixture.granted(one, fixture.request({ resources }))
  },
  async 'a reader that nobody renews ends alone, whichever of the two came first, and is lost'(fixture) {
    const [one, two] = await fixture.engines()
    const { shortTtlMs } = fixture
    for (const ttls of [
      [shortTtlMs, LONG_TTL_MS],
      [LONG_TTL_MS, shortTtlMs],
    ]) {
      const first = await reader(fixture, one, { ttlMs: ttls[0]! })
      const { resources } = first
      const second = await reader(fixture, two, { resources, ttlMs: ttls[1]! })
      const [short, long] = first.ttlMs < second.ttlMs ? [first, second] : [second, first]
      // Some leases end with a session, which only its own engine extends.
      const [ofShort, ofLong] = short === first ? [one, two] : [two, one]
      await holders(fixture, one, resources, [long])
      await fixture.refused(two, fixture.request({ resources }))
      assert.deepEqual(await ofShort.extend([short]), [{ kind: 'lost' }])
      assert.deepEqual(await ofLong.extend([long]), [{ kind: 'held' }])
      assert.equal((await one.release(short)).ours, false)
      await fixture.refused(two, fixture.request({ resources }))
      assert.equal((await two.release(long)).ours, true)
      await fixture.granted(two, fixture.request({ resources }))
    }
  },
  async 'when the last reader has ended by itself, a writer gets in'(fixture) {
    const { one, two, lease: first, resources } = await fixture.held({ ttlMs: fixture.shortTtlMs, shared: true })
    const second = await reader(fixture, two, { resources, ttlMs: fixture.shortTtlMs })
    const { token } = await fixture.eventuallyGranted(two, fixture.request({ resources }))
    assert.ok(token > first.token && token > second.token, `expected more than ${second.token}, got ${token}`)
    assert.deepEqual(await one.extend([first, second]), [{ kind: 'lost' }, { kind: 'lost' }])
  },
  async 'an extension makes one reader last longer, and no other'(fixture) {
    const { one, two, lease: first, resources } = await fixture.held({ ttlMs: fixture.shortTtlMs * 2, shared: true })
    const second = await reader(fixture, two, { resources, ttlMs: fixture.shortTtlMs * 2 })
    assert.deepEqual(await one.extend([{ ...first, ttlMs: LONG_TTL_MS }]), [{ kind: 'held' }])
    await holders(fixture, one, resources, [first])
    await fixture.refused(two, fixture.request({ resources }))
    assert.deepEqual(await two.extend([second]), [{ kind: 'lost' }])
  },
  async 'an extension that makes one reader shorter ends no other'(fixture) {
    const { one, two, lease: first, resources } = await fixture.held({ shared: true })
    const second = await reader(fixture, two, { resources })
    assert.deepEqual(await one.extend([{ ...first, ttlMs: fixture.shortTtlMs }]), [{ kind: 'held' }])
    await holders(fixture, two, resources, [second])
    await fixture.refused(one, fixture.request({ resources }))
    assert.deepEqual(await two.extend([second]), [{ kind: 'held' }])
  },
  async 'readers and writers are extended at once, and the answers come in their order'(fixture) {
    const engine = await fixture.engine()
    const [a, b] = fixture.names(2) as [string, string]
    const leases: LeaseRef[] = []
    for (const resources of [[a], [a, b], [b], [a], [a, b]]) leases.push(await reader(fixture, engine, { resources }))
    for (let i = 0; i < 3; i++) leases.push(await fixture.lease(engine))
    const gone = leases.filter((_, index) => index === 0 || index === 4 || index === 6)
    for (const lease of gone) await engine.release(lease)
    const mixed = [5, 0, 1, 6, 2, 4, 3, 7].map((index) => leases[index]!)
    assert.deepEqual(
      (await engine.extend(mixed)).map(({ kind }) => kind),
      mixed.map((lease) => (gone.includes(lease) ? 'lost' : 'held')),
    )
  },
  async 'a reader that was ended on one of its resources is lost, and the others stay'(fixture) {
    const [one, two] = await fixture.engines()
    const [a, b] = fixture.names(2) as [string, string]
    const first = await reader(fixture, one, { resources: [a, b] })
    const second = await reader(fixture, one, { resources: [a, b] })
    await two.release({ ...first, resources: [b] })
    assert.deepEqual(await one.extend([first, second]), [{ kind: 'lost' }, { kind: 'held' }])
    await one.release(first)
    await holders(fixture, two, [a], [second])
    await holders(fixture, two, [b], [second])
  },
  async 'only its owner can extend or release a reader, and never one that is gone'(fixture) {
    const engine = await fixture.engine()
    const lease = await reader(fixture, engine)
    const stranger = { ...lease, owner: fixture.owner() }
    assert.deepEqual(await engine.extend([stranger]), [{ kind: 'lost' }])
    assert.equal((await engine.release(stranger)).ours, false)
    await holders(fixture, engine, lease.resources, [lease])
    await engine.release(lease)
    assert.deepEqual(await engine.extend([lease]), [{ kind: 'lost' }])
    await fixture.granted(engine, fixture.request({ resources: lease.resources }))
  },
  async 'every engine on the same servers can release one reader, for its owner, and the others stay'(fixture) {
    const { one, two, lease: first, resources } = await fixture.held({ shared: true })
    const second = await reader(fixture, one, { resources })
    assert.equal((await two.release(first)).ours, true)
    assert.deepEqual(await one.extend([first, second]), [{ kind: 'lost' }, { kind: 'held' }])
    await fixture.refused(two, fixture.request({ resources }))
  },
  async 'a shared acquire that is sent twice for one owner is granted twice, with no lower token, and is one lease'(
    fixture,
  ) {
    const [one, two] = await fixture.engines()
    const request = fixture.request({ shared: true })
    const { resources } = request
    const first = await fixture.granted(one, request)
    await reader(fixture, two, { resources })
    const second = await fixture.granted(one, request)
    // On a quorum, the counters may have been lifted meanwhile by others who read as well.
    assert.ok(second.token >= first.token, `expected ${first.token} or more, got ${second.token}`)
    assert.equal((await collect(two.inspect(resources[0]))).length, 2)
    assert.equal((await one.release({ ...request, token: first.token })).ours, true)
    assert.equal((await one.release({ ...request, token: first.token })).ours, false)
  },
  async 'the token of a reader is greater than that of every writer before it, and less than that of every later one'(
    fixture,
  ) {
    const [one, two] = await fixture.engines()
    const { resources } = fixture.request()
    let last = 0n
    for (let i = 0; i < 3; i++) {
      const writer = await fixture.lease(one, { resources })
      assert.ok(writer.token > last, `writer: expected more than ${last}, got ${writer.token}`)
      await one.release(writer)
      const first = await reader(fixture, two, { resources })
      assert.ok(first.token > writer.token, `reader: expected more than ${writer.token}, got ${first.token}`)
      const second = await reader(fixture, one, { resources })
      assert.ok(second.token >= first.token, `joins: expected ${first.token} or more, got ${second.token}`)
      await two.release(first)
      await one.release(second)
      last = second.token
    }
  },
  async 'the token of a reader is greater than that of a writer whose time is over'(fixture) {
    const engine = await fixture.engine()
    const writer = await fixture.lease(engine, { ttlMs: fixture.shortTtlMs })
    const { resources } = writer
    const { token } = await fixture.eventuallyGranted(engine, fixture.request({ resources, shared: true }))
    assert.ok(token > writer.token, `expected more than ${writer.token}, got ${token}`)
    assert.deepEqual(await engine.extend([writer]), [{ kind: 'lost' }])
  },
  async 'several resources are shared all or none, next to exclusive leases on one of them'(fixture) {
    const [one, two] = await fixture.engines()
    const [a, b, c] = fixture.names(3) as [string, string, string]
    const writer = await fixture.lease(one, { resources: [b] })
    await fixture.refused(two, fixture.request({ resources: [a, b], shared: true }))
    const alone = await fixture.lease(two, { resources: [a] })
    await two.release(alone)
    await one.release(writer)
    const first = await reader(fixture, one, { resources: [a, b] })
    assert.ok(first.token > writer.token && first.token > alone.token)
    const second = await reader(fixture, two, { resources: [b, c] })
    for (const resources of [[a], [b], [c], [a, b, c]]) await fixture.refused(two, fixture.request({ resources }))
    assert.equal((await one.release(first)).ours, true)
    const next = await fixture.lease(one, { resources: [a] })
    assert.ok(next.token > first.token, `expected more than ${first.token}, got ${next.token}`)
    await fixture.refused(one, fixture.request({ resources: [b] }))
    assert.equal((await two.release(second)).ours, true)
    const last = await fixture.lease(one, { resources: [b, c] })
    assert.ok(last.token > first.token && last.token > second.token, `got ${last.token}`)
  },
  async 'inspect shows each reader of a resource, to other engines too, and says that it is shared'(fixture) {
    const { one, two, lease: first } = await fixture.held({ resources: fixture.names(2), shared: true })
    const second = await reader(fixture, two, { resources: [first.resources[1]!] })
    const writer = await fixture.lease(two)
    const expected = new Map<string, bigint>([
      ...first.resources.map((resource) => [shown(resource, first.owner, true), first.token] as const),
      [shown(second.resources[0]!, second.owner, true), second.token],
      [shown(writer.resources[0]!, writer.owner), writer.token],
    ])
    for (const engine of [one, two]) {
      const names = [...first.resources, ...writer.resources]
      const alone = (await Promise.all(names.map((name) => collect(engine.inspect(name))))).flat()
      const all = (await collect(engine.inspect())).filter(({ resource }) => names.includes(resource))
      for (const infos of [alone, all]) {
        const holders = infos.map(({ resource, owner, shared }) => shown(resource, owner, shared))
        assert.deepEqual(holders.sort(), [...expected.keys()].sort())
        for (const { resource, owner, token, shared, remainingMs = 0 } of infos) {
          const granted = expected.get(shown(resource, owner, shared))!
          // A quorum shows the counter, which others who read as well may have lifted.
          assert.ok(shared === true ? token >= granted : token === granted, `expected ${granted}, got ${token}`)
          assert.ok(remainingMs > 0 && remainingMs <= LONG_TTL_MS)
        }
      }
    }
  },
  async 'a writer that waits keeps later readers out, and gets in before them'(fixture) {
    const { one, two, lease, resources } = await fixture.held({ shared: true })
    const waiting = await waitingWriter(fixture, two, resources)
    for (const engine of [one, two]) await fixture.refused(engine, fixture.request({ resources, shared: true }))
    await one.release(lease)
    const writer = await waiting.granted()
    assert.ok(writer.token > lease.token, `expected more than ${lease.token}, got ${writer.token}`)
    await fixture.refused(one, fixture.request({ resources, shared: true }))
    await two.release(writer)
    const next = await fixture.eventuallyGranted(one, fixture.request({ resources, shared: true }))
    assert.ok(next.token > writer.token, `expected more than ${writer.token}, got ${next.token}`)
  },
  async 'when a writer that waits gives up, readers get in again beside those that hold'(fixture) {
    const { one, two, lease, resources } = await fixture.held({ shared: true })
    const waiting = await waitingWriter(fixture, two, resources)
    await waiting.giveUp()
    await fixture.eventuallyGranted(two, fixture.request({ resources, shared: true }))
    assert.deepEqual(await one.extend([lease]), [{ kind: 'held' }])
  },
  async 'a writer that does not wait keeps nobody out'(fixture) {
    const { two, resources } = await fixture.held({ shared: true })
    await fixture.refused(two, fixture.request({ resources }))
    await reader(fixture, two, { resources })
  },
  async 'of 20 readers and 5 writers who race, no writer is ever beside anyone'(fixture) {
    const engines = [await fixture.engine(), await fixture.engine()]
    const { resources } = fixture.request()
    const inside = { readers: 0, writers: 0 }
    let together = 0
    const section = async (engine: Engine, kind: 'readers' | 'writers'): Promise<void> => {
      const shared = kind === 'readers'
      const request = fixture.request({ resources, shared, waits: true })
      const { token } = await fixture.eventuallyGranted(engine, request)
      inside[kind]++
      together = Math.max(together, inside.readers)
      assert.ok(inside.writers === 0 || inside.readers + inside.writers === 1, JSON.stringify(inside))
      await sleep(systemClock, 5)
      inside[kind]--
      assert.equal((await engine.release({ ...request, token })).ours, true)
    }
    const all = Array.from({ length: 25 }, (_, i) => section(engines[i % 2]!, i % 5 === 4 ? 'writers' : 'readers'))
    // All of them are over before what they use is removed.
    for (const outcome of await Promise.allSettled(all)) if (outcome.status === 'rejected') throw outcome.reason
    assert.ok(together > 1, 'expected readers side by side')
  },
}

/** What an engine does that has shared leases and a queue. */
export const SHARED_IN_QUEUE: Cases = {
  async 'a reader in the queue is granted beside other readers'(fixture) {
    const { two, lease } = await fixture.held({ shared: true })
    const request = fixture.request({ resources: lease.resources, shared: true })
    const { token } = await enqueue(fixture, two, request).granted()
    assert.ok(token >= lease.token, `expected ${lease.token} or more, got ${token}`)
    assert.deepEqual(await two.extend([{ ...request, token }]), [{ kind: 'held' }])
  },
  async 'readers in the queue are all granted when the writer before them is done'(fixture) {
    const engines = [await fixture.engine(), await fixture.engine()]
    const writer = await fixture.lease(engines[0]!)
    const requests = Array.from({ length: 4 }, () => fixture.request({ resources: writer.resources, shared: true }))
    const places = requests.map((request, index) => enqueue(fixture, engines[index % 2]!, request))
    assert.ok(places.every((place) => !place.isSettled()))
    await engines[0]!.release(writer)
    // None of them is released in between.
    for (const place of places) {
      const { token } = await place.granted()
      assert.ok(token > writer.token, `expected more than ${writer.token}, got ${token}`)
    }
  },
  async 'in the queue a writer waits for the readers before it, and a reader for the writer before it'(fixture) {
    const [one, two, three] = [await fixture.engine(), await fixture.engine(), await fixture.engine()]
    const lease = await reader(fixture, one)
    const { resources } = lease
    const writer = await waitingWriter(fixture, two, resources)
    const behind = fixture.request({ resources, shared: true })
    const place = enqueue(fixture, three, behind)
    await one.release(lease)
    const written = await writer.granted()
    assert.equal(place.isSettled(), false)
    await fixture.refused(one, fixture.request({ resources, shared: true }))
    await two.release(written)
    const { token } = await place.granted()
    assert.ok(token > written.token, `expected more than ${written.token}, got ${token}`)
  },
}

/** What an engine does that has none. */
export const EXCLUSIVE_ONLY: Cases = {
  async 'locks on an engine without shared leases refuse to share, and say so'(fixture) {
    const locks = await fixture.locks()
    const name = fixture.name()
    const refused = { name: 'RangeError', message: /^shared: expected false/ }
    await assert.rejects(locks.acquire(name, { shared: true }), refused)
    await assert.rejects(locks.tryAcquire(name, { shared: true }), refused)
    await using lease = await locks.tryAcquire(name, { shared: false })
    assert.ok(lease?.held)
  },
}

function reader(fixture: Fixture, engine: Engine, some: Partial<LeaseRequest> = {}): Promise<LeaseRef> {
  return fixture.lease(engine, { ...some, shared: true })
}

/** Waits until the resource has these holders and no others. */
async function holders(
  fixture: Fixture,
  engine: Engine,
  [resource]: readonly string[],
  leases: LeaseRef[],
): Promise<void> {
  const expected = leases.map(({ owner }) => owner).sort()
  await fixture.eventually(`the holders to be ${expected.join(' and ')}`, async () => {
    const owners = (await collect(engine.inspect(resource))).map(({ owner }) => owner)
    return owners.sort().join() === expected.join()
  })
}

interface WaitingWriter {
  granted(): Promise<LeaseRef>
  giveUp(): Promise<void>
}

/** A writer that waits: in the queue where there is one, and otherwise by coming again. Readers are kept out when this resolves. */
async function waitingWriter(fixture: Fixture, engine: Engine, resources: readonly string[]): Promise<WaitingWriter> {
  const first = fixture.request({ resources, waits: true })
  await fixture.refused(engine, first)
  if (!fixture.methods.includes('enqueue')) {
    return {
      granted: async () => ({ ...first, ...(await fixture.eventuallyGranted(engine, first)) }),
      giveUp: async () => undefined,
    }
  }
  const request = fixture.request({ resources })
  const place = enqueue(fixture, engine, request)
  await fixture.eventually('the writer in the queue to keep readers out', async () => {
    const probe = fixture.request({ resources, shared: true })
    const outcome = await engine.acquire(probe)
    if (outcome.kind === 'granted') await engine.release({ ...probe, token: outcome.token })
    return outcome.kind === 'refused'
  })
  return {
    async granted() {
      const { token, owner = request.owner } = await place.granted()
      return { ...request, owner, token }
    },
    async giveUp() {
      const reason = new Error('changed my mind')
      place.abort(reason)
      await assert.rejects(place.granted(), reason)
    },
  }
}

function shown(resource: string, owner: string, shared = false): string {
  return `${resource} ${owner}${shared ? ', shared' : ''}`
}
