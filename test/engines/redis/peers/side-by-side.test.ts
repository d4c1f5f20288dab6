import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { redis, redlock } from '../../../../src/engines/redis/index.ts'
import { until } from '../../../../harness/until.ts'
import { ioredis, locksOn, server, servers, settle, type Watched } from './bench.ts'
import { LIBRARIES, type Library, type PeerLock } from './libraries.ts'

/** Longer than any test: nobody gets a lock by waiting for its end. */
const TTL_MS = 60_000
const SECTIONS = 80

type Nodes = Awaited<ReturnType<typeof servers>> | [Awaited<ReturnType<typeof server>>]

async function start(size: number): Promise<Nodes> {
  return size === 1 ? [await server()] : servers(size)
}

/** Locks of a process of ours. */
function ours(nodes: Nodes, { prefix }: Library): Watched {
  const clients = nodes.map(ioredis)
  const engine = clients.length === 1 ? redis(clients[0], { prefix }) : redlock(clients, { prefix })
  return locksOn(engine, { ttl: TTL_MS, wait: '20s' })
}

const CASES = LIBRARIES.flatMap((library) => [1, 5].map((size) => [library.name, size, library] as const))

describe.each(CASES)('%s on %i', (_name, size, library) => {
  test('it excludes us and we it, and each gets what the other gives back', { timeout: 60_000 }, async () => {
    const nodes = await start(size)
    const mine = ours(nodes, library)
    await settle(mine)
    const theirs = library.open(nodes.map(ioredis), 'order', TTL_MS)
    const release = await theirs.acquire()
    expect(await mine.locks.tryAcquire('order')).toBeNull()
    const waiting = mine.locks.acquire('order')
    await mine.event('waiting')
    await release()
    const lease = await waiting
    expect(await theirs.attempt()).toBeUndefined()
    const next = theirs.acquire()
    await lease.release()
    await (
      await next
    )()
    await mine.locks.using('order', () => undefined)
  })

  test(
    'two of its processes and two of ours: no update is lost, and each side gets its share',
    { timeout: 60_000 },
    () => sharing(size, library, (peer) => peer.acquire()),
  )
})

// On a quorum their own retries keep the keys of a minority, and block each other without us already.
test.each(LIBRARIES)(
  '$name with its own retries: no update is lost, and each side gets its share',
  { timeout: 60_000 },
  (library) => sharing(1, library, (peer) => peer.retry()),
)

test.each([1, 3])(
  'a lock that was deleted by hand on %i is noticed within seconds',
  { timeout: 30_000 },
  async (size) => {
    const nodes = await start(size)
    const holder = ours(nodes, LIBRARIES[0]!)
    const waiter = ours(nodes, LIBRARIES[0]!)
    await settle(holder)
    await holder.locks.acquire('order')
    const waiting = waiter.locks.acquire('order', { wait: '10s' })
    await until(() => waiter.events.some((event) => event.type === 'waiting' && event.atMostMs > 1000), {
      what: 'the waiter sleeps, subscribed',
    })
    for (const node of nodes) await node.cli('DEL', 'order')
    expect((await waiting).held).toBe(true)
  },
)

async function sharing(
  size: number,
  library: Library,
  acquire: (peer: PeerLock) => Promise<() => Promise<unknown>>,
): Promise<void> {
  const nodes = await start(size)
  const store = ioredis(nodes[0])
  const processes = [ours(nodes, library), ours(nodes, library)]
  for (const process of processes) await settle(process)
  let sections = 0
  /** What a lock is for: read, think, write. Two at once lose an update. */
  const section = async (): Promise<void> => {
    const count = Number((await store.get('count')) ?? '0')
    await pause(2 + 4 * Math.random())
    await store.set('count', count + 1)
    sections++
  }
  const isEnough = (): boolean => sections >= SECTIONS
  const had = async (acquire: () => Promise<() => Promise<unknown>>): Promise<number> => {
    let count = 0
    while (!isEnough()) {
      const release = await acquire()
      await section()
      count++
      await release()
      await pause(30 + 30 * Math.random())
    }
    return count
  }
  const peers = [0, 1].map(() => library.open(nodes.map(ioredis), 'order', TTL_MS))
  const [theirs, mine] = await Promise.all([
    Promise.all(peers.map((peer) => had(() => acquire(peer)))),
    Promise.all(
      processes.map(({ locks }) =>
        had(async () => {
          const lease = await locks.acquire('order')
          return () => lease.release()
        }),
      ),
    ),
  ])
  const all = sum([...theirs, ...mine])
  expect(Number(await store.get('count'))).toBe(all)
  // Of four who want it equally, half is a fair share, and half of that the least.
  expect(sum(mine)).toBeGreaterThanOrEqual(all / 4)
  // They look again after a while where we are told, so a tenth is what they get at least.
  expect(sum(theirs)).toBeGreaterThanOrEqual(all / 10)
  await Promise.all(processes.map(({ locks }) => locks.close()))
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((one, other) => one + other, 0)
}
