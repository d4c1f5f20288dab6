import assert from 'node:assert/strict'
import { elapsedMs, systemClock } from '../clock.ts'
import type { Engine, LeaseRef, LeaseRequest, QueuedGrant, RoundTrip } from '../engine.ts'
import { EngineError } from '../errors.ts'
import { collect, LONG_TTL_MS, type Cases, type Fixture, type OptionalMethod } from './fixture.ts'
import { ADOPT } from './moves.ts'

/** What an engine does that has the method. */
export const OPTIONAL: Record<OptionalMethod, Cases> = {
  handOver: {
    async 'handOver gives the lease a new owner and a higher token in one step'(fixture) {
      const engine = await fixture.engine()
      const lease = await fixture.lease(engine)
      const next = fixture.request({ resources: lease.resources })
      const { token } = await handedOver(fixture, engine, lease, next)
      assert.ok(token > lease.token, `expected more than ${lease.token}, got ${token}`)
      assert.deepEqual(await engine.extend([lease]), [{ kind: 'lost' }])
      assert.deepEqual(await engine.extend([{ ...next, token }]), [{ kind: 'held' }])
    },
    async 'handOver refuses a lease that is gone, and one of another owner'(fixture) {
      const engine = await fixture.engine()
      const lease = await fixture.lease(engine)
      await engine.release(lease)
      const other = await fixture.lease(engine, { resources: lease.resources })
      const next = fixture.request({ resources: lease.resources })
      const outcome = await engine.handOver!(lease, next)
      fixture.keep(engine, { ...next, token: 0n })
      assert.equal(outcome.kind, 'refused')
      assert.deepEqual(await engine.extend([other]), [{ kind: 'held' }])
    },
    async 'handOver passes on all resources of a lease, for the ttl of the next request'(fixture) {
      const [engine, other] = await fixture.engines()
      const ttlMs = LONG_TTL_MS / 3
      const lease = await fixture.lease(engine, { resources: fixture.names(2), ttlMs })
      const next = fixture.request({ resources: lease.resources })
      await handedOver(fixture, engine, lease, next)
      for (const resource of lease.resources) {
        await fixture.refused(other, fixture.request({ resources: [resource] }))
        const [info] = await collect(other.inspect(resource))
        assert.equal(info?.owner, next.owner)
        assert.ok((info.remainingMs ?? 0) > ttlMs, `expected more than ${ttlMs} ms left, got ${info.remainingMs}`)
      }
    },
    async 'handOver lets nobody in between'(fixture) {
      const { one: engine, two: other, lease, resources } = await fixture.held()
      const rivals = Array.from({ length: 20 }, () => fixture.request({ resources }))
      for (const rival of rivals) fixture.keep(other, { ...rival, token: 0n })
      const attempts = rivals.slice(0, 10).map((rival) => other.acquire(rival))
      const handOver = handedOver(fixture, engine, lease, fixture.request({ resources }))
      attempts.push(...rivals.slice(10).map((rival) => other.acquire(rival)))
      await handOver
      const intruders = (await Promise.all(attempts)).filter(({ kind }) => kind === 'granted')
      assert.deepEqual(intruders, [])
    },
    async 'handOver to two at once is granted to at most one'(fixture) {
      const engine = await fixture.engine()
      const lease = await fixture.lease(engine)
      const { resources } = lease
      const heirs = [fixture.request({ resources }), fixture.request({ resources })]
      for (const heir of heirs) fixture.keep(engine, { ...heir, token: 0n })
      const outcomes = await Promise.all(heirs.map((heir) => engine.handOver!(lease, heir)))
      const granted = outcomes.filter(({ kind }) => kind === 'granted')
      assert.ok(granted.length <= 1, `${granted.length} were granted`)
      assert.deepEqual(await engine.extend([lease]), [{ kind: 'lost' }])
    },
  },
  adopt: ADOPT,
  leave: {
    async 'leave keeps others out for its ttl although the engine is closed, and not longer'(fixture) {
      const { one: engine, two: other, lease } = await fixture.held()
      const ttlMs = fixture.shortTtlMs * 2
      const beganMs = systemClock.monotonicMs()
      assert.deepEqual(await engine.leave!({ ...lease, ttlMs }), { kind: 'held' })
      await fixture.end(engine, other)
      const { token } = await fixture.eventuallyGranted(other, fixture.request({ resources: lease.resources }))
      const afterMs = systemClock.monotonicMs() - beganMs
      // Two clocks that round to whole milliseconds may differ by as much.
      assert.ok(afterMs >= ttlMs - 2, `granted after ${afterMs} ms of ${ttlMs}`)
      assert.ok(afterMs < LONG_TTL_MS / 2, `granted only after ${afterMs} ms, with ${ttlMs} ms left`)
      assert.ok(token > lease.token, `expected more than ${lease.token}, got ${token}`)
    },
    async 'leave says that a lease is lost which is gone or has another owner, and creates none'(fixture) {
      const engine = await fixture.engine()
      const lease = await fixture.lease(engine)
      const stranger = { ...lease, owner: fixture.owner() }
      fixture.keep(engine, stranger)
      assert.deepEqual(await engine.leave!(stranger), { kind: 'lost' })
      assert.deepEqual(await engine.extend([lease]), [{ kind: 'held' }])
      await engine.release(lease)
      assert.deepEqual(await engine.leave!(lease), { kind: 'lost' })
      await fixture.granted(engine, fixture.request({ resources: lease.resources }))
    },
  },
  enqueue: {
    async 'enqueue on a free resource is granted'(fixture) {
      const engine = await fixture.engine()
      const request = fixture.request()
      const { token } = await enqueue(fixture, engine, request).granted()
      assert.deepEqual(await engine.extend([{ ...request, token }]), [{ kind: 'held' }])
      await fixture.refused(engine, fixture.request({ resources: request.resources }))
    },
    async 'enqueue keeps its place for longer than its ttl, and the grant is proved after the wait'(fixture) {
      const { one, two, lease } = await fixture.held()
      const request = fixture.request({ resources: lease.resources, ttlMs: fixture.shortTtlMs })
      const place = enqueue(fixture, two, request)
      await waiters(fixture, one, lease, 1)
      const until = systemClock.monotonicMs() + fixture.shortTtlMs * 3
      await fixture.eventually('three ttls to be over', () => systemClock.monotonicMs() > until)
      assert.equal(place.isSettled(), false)
      await waiters(fixture, one, lease, 1)
      await one.release(lease)
      const { token, since } = await place.granted()
      const ageMs = elapsedMs(systemClock, since)
      assert.ok(ageMs >= 0 && ageMs < fixture.shortTtlMs, `the proof is ${ageMs} ms old`)
      assert.ok(token > lease.token, `expected more than ${lease.token}, got ${token}`)
      assert.deepEqual(await two.extend([{ ...request, token, ttlMs: LONG_TTL_MS }]), [{ kind: 'held' }])
    },
    async 'enqueue grants in the order of arrival, over engines'(fixture) {
      const engines = [await fixture.engine(), await fixture.engine()]
      const lease = await fixture.lease(engines[0]!)
      const order: number[] = []
      const places: Promise<unknown>[] = []
      for (let index = 0; index < 4; index++) {
        const engine = engines[index % 2]!
        const request = fixture.request({ resources: lease.resources })
        const place = enqueue(fixture, engine, request)
        places.push(
          place.granted().then(({ token }) => {
            order.push(index)
            return engine.release({ ...request, token })
          }),
        )
        await waiters(fixture, engine, lease, index + 1)
      }
      await engines[0]!.release(lease)
      await Promise.all(places)
      assert.deepEqual(order, [0, 1, 2, 3])
    },
    async 'enqueue is seen by inspect: who waits, in which order and since when'(fixture) {
      const engines = [await fixture.engine(), await fixture.engine(), await fixture.engine()]
      const lease = await fixture.lease(engines[0]!)
      const [name] = lease.resources
      assert.equal((await collect(engines[0]!.inspect(name)))[0]?.line, undefined)
      const owners: string[] = []
      for (const [index, engine] of engines.entries()) {
        const request = fixture.request({ resources: lease.resources })
        owners.push(request.owner)
        enqueue(fixture, engine, request)
        await waiters(fixture, engine, lease, index + 1)
      }
      const [info] = await collect(engines[0]!.inspect(name))
      const [sameInfo] = (await collect(engines[1]!.inspect())).filter(({ resource }) => resource === name)
      const nowMs = systemClock.wallMs()
      for (const line of [info?.line, sameInfo?.line]) {
        assert.deepEqual(
          line?.map(({ owner }) => owner),
          owners,
        )
        const ages = line.map(({ since = Number.NaN }) => nowMs - since)
        // Clocks of a server and of this process may differ a little.
        for (const ageMs of ages) assert.ok(ageMs > -LONG_TTL_MS / 10 && ageMs < LONG_TTL_MS, `waits for ${ageMs} ms`)
        assert.deepEqual(
          ages,
          ages.toSorted((some, other) => other - some),
        )
      }
    },
    async 'enqueue rejects with the reason of its signal, and by then its place is given up'(fixture) {
      const { one, two, lease, resources } = await fixture.held()
      const [first, second] = [fixture.request({ resources }), fixture.request({ resources })]
      const place = enqueue(fixture, one, first)
      await waiters(fixture, one, lease, 1)
      const behind = enqueue(fixture, two, second)
      await waiters(fixture, one, lease, 2)
      const reason = new Error('changed my mind')
      place.abort(reason)
      await assert.rejects(place.granted(), reason)
      await one.release(lease)
      await behind.granted()
      const never = enqueue(fixture, one, fixture.request({ resources }), AbortSignal.abort(reason))
      await assert.rejects(never.granted(), reason)
    },
  },
  onDoubt: {
    async 'onDoubt calls back when a connection is lost, and then a lease can be proved or is lost'(fixture) {
      const engine = await fixture.engine()
      let doubts = 0
      engine.onDoubt!(() => doubts++)
      const lease = await fixture.lease(engine)
      await fixture.disconnect(engine)
      const prove = async (): Promise<string> => (await engine.extend([lease]))[0]!.kind
      // Some drivers say only with the next request that the connection is gone.
      await fixture.eventually('the engine to doubt its leases', async () => (await prove()) !== '' && doubts > 0)
      await fixture.eventually('the lease to be proved or lost', async () => (await prove()) !== 'unknown')
      const next = fixture.request({ resources: lease.resources })
      if ((await prove()) === 'held') await fixture.refused(engine, next)
      else await fixture.granted(engine, next)
    },
  },
  observe: {
    async 'observe reports the round trips of commands, to each server that is asked'(fixture) {
      const engine = await fixture.engine()
      const trips: RoundTrip[] = []
      engine.observe!((trip) => trips.push(trip))
      const lease = await fixture.lease(engine)
      await engine.extend([lease])
      await engine.release(lease)
      const nodes = (await engine.probe?.())?.map(({ node }) => node) ?? []
      await fixture.eventually('a round trip to each server', () => {
        return trips.length > 0 && nodes.every((node) => trips.some((trip) => trip.node === node))
      })
      for (const { type, node, operation, outcome, tookMs } of trips) {
        assert.equal(type, 'roundTrip')
        assert.ok(node !== '' && operation !== '', 'expected the names of a server and an operation')
        assert.doesNotMatch(node, /:[^/]*@/, 'expected no password')
        assert.ok(['answered', 'failed', 'silent'].includes(outcome), `outcome ${outcome}`)
        assert.ok(tookMs >= 0 && tookMs < LONG_TTL_MS, `expected milliseconds, got ${tookMs}`)
      }
      assert.ok(trips.some(({ outcome }) => outcome === 'answered'))
    },
  },
  watch: {
    async 'watch notices a release of each of its resources once it is armed'(fixture) {
      const [one, two] = await fixture.engines()
      const resources = fixture.names(2)
      const leases = [
        await fixture.lease(one, { resources: [resources[0]!] }),
        await fixture.lease(one, { resources: [resources[1]!] }),
      ]
      let freed = 0
      const watch = two.watch!(resources, () => freed++)
      const armed = await watch.armed
      assert.equal(typeof armed, 'boolean')
      for (const lease of leases) {
        const before = freed
        await one.release(lease)
        // An engine that cannot promise wake-ups says so, and the core polls.
        await fixture.eventually('the watch to notice the release', () => !armed || freed > before)
      }
      watch.close()
    },
    async 'watch goes on for others when one of them is closed'(fixture) {
      const { one, two, lease } = await fixture.held()
      let freed = 0
      const closed = two.watch!(lease.resources, () => undefined)
      const watch = two.watch!(lease.resources, () => freed++)
      const armed = (await Promise.all([closed.armed, watch.armed]))[1]
      closed.close()
      closed.close()
      await one.release(lease)
      await fixture.eventually('the other watch to notice the release', () => !armed || freed > 0)
      watch.close()
    },
  },
  unanswered: {
    async 'unanswered returns an EngineError about the resources'(fixture) {
      const engine = await fixture.engine()
      const { resources, ttlMs } = fixture.request()
      const error = engine.unanswered!({ resources, ttlMs }, 1000)
      assert.ok(error instanceof EngineError, `expected an EngineError, got ${String(error)}`)
      assert.deepEqual(error.resources, resources)
      assert.notEqual(error.message, '')
    },
  },
  probe: {
    async 'probe says how each server answers, and changes nothing'(fixture) {
      const engine = await fixture.engine()
      const lease = await fixture.lease(engine)
      const states = await engine.probe!()
      assert.ok(states.length > 0, 'expected the state of a server, got none')
      assert.equal(new Set(states.map(({ node }) => node)).size, states.length, 'expected each server once')
      for (const { node, roundTripMs, clockOffsetMs = 0, error } of states) {
        assert.notEqual(node, '')
        assert.doesNotMatch(node, /:[^/]*@/, 'expected no password')
        assert.equal(error, undefined)
        assert.ok(roundTripMs !== undefined && roundTripMs >= 0, `${node}: round trip ${roundTripMs}`)
        assert.ok(Number.isFinite(clockOffsetMs), `${node}: clock offset ${clockOffsetMs}`)
      }
      const [info] = await collect(engine.inspect(lease.resources[0]))
      assert.deepEqual([info?.owner, info?.token], [lease.owner, lease.token])
      assert.deepEqual(await engine.extend([lease]), [{ kind: 'held' }])
    },
    async 'probe of a closed engine does not reject'(fixture) {
      const [engine, other] = await fixture.engines()
      await fixture.end(engine, other)
      await assert.doesNotReject(engine.probe!())
    },
  },
  init: {
    async 'init says what it did, and when repeated keeps the leases and the counters'(fixture) {
      const engine = await fixture.engine()
      const lease = await fixture.lease(engine)
      for (let time = 0; time < 2; time++) {
        for (const line of await engine.init!()) assert.ok(typeof line === 'string' && line !== '')
      }
      assert.deepEqual(await engine.extend([lease]), [{ kind: 'held' }])
      await engine.release(lease)
      await engine.init!()
      const { token } = await fixture.lease(engine, { resources: lease.resources })
      assert.ok(token > lease.token, `expected more than ${lease.token}, got ${token}`)
    },
  },
}

async function handedOver(
  fixture: Fixture,
  engine: Engine,
  lease: LeaseRef,
  next: LeaseRequest,
): Promise<{ token: bigint }> {
  const outcome = await engine.handOver!(lease, next)
  assert.equal(outcome.kind, 'granted')
  fixture.keep(engine, { ...next, token: outcome.token })
  return outcome
}

interface Place {
  /** Resolves with the grant once it has come. */
  granted(): Promise<QueuedGrant>
  isSettled(): boolean
  abort(reason: Error): void
}

/** Takes a place in the queue. What is granted is released after the case, and a wait that goes on is aborted. */
export function enqueue(
  fixture: Fixture,
  engine: Engine,
  request: LeaseRequest,
  signal?: AbortSignal,
  newOwner?: () => string,
): Place {
  const controller = new AbortController()
  let isSettled = false
  const waiting = engine.enqueue!(request, signal ?? controller.signal, newOwner).finally(() => (isSettled = true))
  waiting.then(
    ({ token, owner = request.owner }) => fixture.keep(engine, { ...request, owner, token }),
    () => undefined,
  )
  const settled = (what: string): Promise<void> => fixture.eventually(what, () => isSettled)
  fixture.onClose(() => {
    controller.abort()
    return settled('the wait in the queue to end')
  })
  return {
    async granted() {
      await settled('the lease to be granted to the one in the queue')
      const grant = await waiting
      assert.equal(grant.kind, 'granted')
      return grant
    },
    isSettled: () => isSettled,
    abort: (reason) => controller.abort(reason),
  }
}

/** Waits until as many are in the queue, as `inspect` shows it. */
export function waiters(fixture: Fixture, engine: Engine, lease: LeaseRef, count: number): Promise<void> {
  return fixture.eventually(`${count} to be in the queue`, async () => {
    const [info] = await collect(engine.inspect(lease.resources[0]))
    return info?.waiters === count
  })
}
