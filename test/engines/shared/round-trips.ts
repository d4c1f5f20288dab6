import type { Engine, LeaseRef, LeaseRequest } from '../../../src/engine.ts'
import { grant as grantOf, request } from './sql/requests.ts'

/** As many leases as the keeper renews at once. */
const MANY = 200
/** No lease ends in the middle, however busy the machine is. */
const TTL_MS = 3_600_000

/** Round trips of each step, one at a time and with nobody else about. */
export interface RoundTrips {
  /** The first acquire, and the first release, of an engine whose client is connected. */
  readonly first: readonly [acquire: number, release: number]
  /** A resource that nobody has ever had. */
  readonly fresh: readonly [acquire: number, release: number]
  /** One that was held before. */
  readonly again: readonly [acquire: number, release: number]
  readonly refusal: number
  /** Of a writer that waits, by readers. */
  readonly refusalByReaders: number
  /** Three resources: as fresh ones, and as ones that were held before. */
  readonly several: readonly [acquire: number, release: number]
  readonly severalAgain: readonly [acquire: number, release: number]
  readonly handOver: number
  readonly handOverOfSeveral: number
  /** A reader of a resource that nobody has, one that joins another reader, and the same of three resources. */
  readonly reader: readonly [acquire: number, release: number]
  readonly joins: readonly [acquire: number, release: number]
  readonly readerOfSeveral: readonly [acquire: number, release: number]
  readonly joinsSeveral: readonly [acquire: number, release: number]
  readonly renewal: number
  /** 200 leases, half of them readers of one resource. */
  readonly renewalWithReaders: number
  /** 200 leases, of one ttl and of many, and 200 of which one is gone. */
  readonly renewalOfMany: number
  readonly renewalOfManyTtls: number
  readonly renewalWithLoss: number
}

export const ONE_EACH: RoundTrips = {
  first: [1, 1],
  fresh: [1, 1],
  again: [1, 1],
  refusal: 1,
  // The second one keeps later readers out.
  refusalByReaders: 2,
  several: [1, 1],
  severalAgain: [1, 1],
  handOver: 1,
  handOverOfSeveral: 1,
  reader: [1, 1],
  joins: [1, 1],
  readerOfSeveral: [1, 1],
  joinsSeveral: [1, 1],
  renewal: 1,
  renewalWithReaders: 1,
  renewalOfMany: 1,
  renewalOfManyTtls: 1,
  renewalWithLoss: 1,
}

/** `count` returns how many round trips there have been so far. The engine is a new one. */
export async function roundTripsOf(engine: Engine, count: () => number | Promise<number>): Promise<RoundTrips> {
  const trips = async (work: () => Promise<unknown>): Promise<number> => {
    const before = await count()
    await work()
    return (await count()) - before
  }
  const grant = (some: Partial<LeaseRequest> = {}): Promise<LeaseRef> => grantOf(engine, { ttlMs: TTL_MS, ...some })
  const granted = async (count: number, some?: Partial<LeaseRequest>): Promise<LeaseRef[]> => {
    const leases: LeaseRef[] = []
    while (leases.length < count) leases.push(await grant(some))
    return leases
  }
  const section = async (resources: readonly string[], shared = false): Promise<readonly [number, number]> => {
    let lease!: LeaseRef
    const acquire = await trips(async () => (lease = await grant({ resources, shared })))
    return [acquire, await trips(() => engine.release(lease))]
  }
  const handOver = async (resources: readonly string[]): Promise<number> => {
    const lease = await grant({ resources })
    const next = request({ resources })
    return trips(async () => {
      const outcome = await engine.handOver!(lease, next)
      if (outcome.kind === 'refused') throw new Error(`the hand-over was refused: ${outcome.reason}`)
    })
  }
  const renewal = (leases: readonly LeaseRef[], lost = 0): Promise<number> =>
    trips(async () => {
      const answers = await engine.extend(leases)
      const held = answers.filter(({ kind }) => kind === 'held').length
      if (held !== leases.length - lost) throw new Error(`${held} of ${leases.length} leases were renewed`)
    })
  const names = ['one', 'two', 'three']
  const [first, fresh, again] = [await section(['first']), await section(['one']), await section(['one'])]
  const several = await section(['fresh 1', 'fresh 2', 'fresh 3'])
  const severalAgain = await section(names)
  const shared = ['shared 1', 'shared 2', 'shared 3']
  const [reader, readerOfSeveral] = [await section(['shared'], true), await section(shared, true)]
  for (const resources of [['shared'], shared]) await grant({ resources, shared: true })
  const [joins, joinsSeveral] = [await section(['shared'], true), await section(shared, true)]
  await grant({ resources: ['held'] })
  const refusal = await trips(() => engine.acquire(request({ resources: ['held'] })))
  const refusalByReaders = await trips(() => engine.acquire(request({ resources: ['shared'], waits: true })))
  // One after the other: of 200 at once the last would wait for the first 199 within its own time.
  const leases = await granted(MANY)
  const readers = await granted(MANY / 2, { resources: ['read'], shared: true })
  return {
    first,
    fresh,
    again,
    refusal,
    refusalByReaders,
    several,
    severalAgain,
    handOver: await handOver(['handed over']),
    handOverOfSeveral: await handOver(names),
    reader,
    joins,
    readerOfSeveral,
    joinsSeveral,
    renewal: await renewal(leases.slice(0, 1)),
    renewalWithReaders: await renewal([...readers, ...leases.slice(0, MANY / 2)]),
    renewalOfMany: await renewal(leases),
    renewalOfManyTtls: await renewal(leases.map((lease, index) => ({ ...lease, ttlMs: TTL_MS + index }))),
    renewalWithLoss: await engine.release(leases[50]!).then(() => renewal(leases, 1)),
  }
}
