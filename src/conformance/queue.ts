import assert from 'node:assert/strict'
import { systemClock } from '../clock.ts'
import type { Engine, LeaseRequest, QueuedGrant } from '../engine.ts'
import { collect, LONG_TTL_MS, type Cases, type Fixture } from './fixture.ts'
import { enqueue, waiters } from './optional-methods.ts'

/** What an engine with `enqueue` makes of the rest of a request: of another owner, an heir, an earlier wait, a failure. */
export const QUEUE: Cases = {
  async 'enqueue grants to the owner of its request, or names the one that newOwner made'(fixture) {
    const [one, two] = [await fixture.engine(), await fixture.engine()]
    const lease = await fixture.lease(one)
    const request = fixture.request({ resources: lease.resources })
    const owners = [request.owner]
    const newOwner = (): string => {
      owners.push(fixture.owner())
      return owners.at(-1)!
    }
    const place = enqueue(fixture, two, request, undefined, newOwner)
    await waiters(fixture, one, lease, 1)
    await one.release(lease)
    const grant = await place.granted()
    const owner = await held(two, request, grant)
    assert.ok(owners.includes(owner), `${owner} is none of ${owners.join(', ')}`)
  },
  async 'enqueue that is aborted with an heir leaves a place that the heir can take, under the owner that its grant names'(
    fixture,
  ) {
    const { one, two, lease, behind } = await withHeir(fixture)
    const next = fixture.request({ resources: lease.resources })
    const places = [enqueue(fixture, one, next), enqueue(fixture, two, behind)]
    await one.release(lease)
    // Who of the two comes first is for the engine to say.
    await Promise.all([turn(one, next, places[0]!.granted()), turn(two, behind, places[1]!.granted())])
  },
  async 'enqueue that is aborted with an heir that never comes lets those behind it in'(fixture) {
    const { one, two, lease, behind } = await withHeir(fixture)
    const place = enqueue(fixture, two, behind)
    await one.release(lease)
    await place.granted()
  },
  async 'enqueue for a caller that has waited already is granted, and shows no earlier wait than that'(fixture) {
    const [one, two] = [await fixture.engine(), await fixture.engine()]
    const lease = await fixture.lease(one)
    const waitedMs = LONG_TTL_MS
    const place = enqueue(fixture, two, fixture.request({ resources: lease.resources, waitedMs }))
    await waiters(fixture, one, lease, 1)
    const [info] = await collect(one.inspect(lease.resources[0]))
    const ageMs = systemClock.wallMs() - (info?.line?.[0]?.since ?? Number.NaN)
    // Clocks of a server and of this process may differ a little.
    assert.ok(
      Math.abs(ageMs - waitedMs / 2) < waitedMs * 0.6,
      `waits for ${ageMs} ms, and should for ${waitedMs} at most`,
    )
    await one.release(lease)
    await place.granted()
  },
  async 'enqueue reports no failure while the servers answer'(fixture) {
    const [one, two] = [await fixture.engine(), await fixture.engine()]
    const lease = await fixture.lease(one)
    const causes: unknown[] = []
    const failing = (cause: Error | undefined): void => void causes.push(cause)
    const place = enqueue(fixture, two, fixture.request({ resources: lease.resources, failing }))
    await waiters(fixture, one, lease, 1)
    await one.release(lease)
    await place.granted()
    assert.equal(causes.at(-1), undefined)
  },
}

/** The owner that has the lease of the grant. */
async function held(
  engine: Engine,
  request: LeaseRequest,
  { token, owner = request.owner }: QueuedGrant,
): Promise<string> {
  assert.deepEqual(await engine.extend([{ ...request, owner, token }]), [{ kind: 'held' }])
  return owner
}

/** Holds the lease of the grant, and releases it. */
async function turn(engine: Engine, request: LeaseRequest, grant: Promise<QueuedGrant>): Promise<void> {
  const owner = await held(engine, request, await grant)
  await engine.release({ ...request, owner, token: (await grant).token })
}

/** A lease is held, the first who waited for it has given up and says that there is an heir, and one is to come behind it. */
async function withHeir(fixture: Fixture): Promise<{
  readonly one: Engine
  readonly two: Engine
  readonly lease: Awaited<ReturnType<Fixture['lease']>>
  readonly behind: LeaseRequest
}> {
  const [one, two] = [await fixture.engine(), await fixture.engine()]
  const lease = await fixture.lease(one)
  const { resources } = lease
  const reason = new Error('changed my mind')
  const place = enqueue(fixture, one, fixture.request({ resources, hasHeir: () => true }))
  await waiters(fixture, one, lease, 1)
  place.abort(reason)
  await assert.rejects(place.granted(), reason)
  return { one, two, lease, behind: fixture.request({ resources }) }
}
