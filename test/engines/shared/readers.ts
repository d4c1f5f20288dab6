import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { systemClock, type Clock } from '../../../src/clock.ts'
import type { Engine, LeaseRef, LeaseRequest } from '../../../src/engine.ts'
import { COME_AGAIN_MS, WANTED_MS } from '../../../src/engines/shared/wanted.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks } from '../../../src/locks.ts'
import { grant, leasesOf, request } from './sql/requests.ts'

const ROUNDS = 40
const CLIENTS = 4
const SECTIONS = 15
const HOUR_MS = 3_600_000
const AN_HOUR_AHEAD: Clock = {
  ...systemClock,
  wallMs: () => systemClock.wallMs() + HOUR_MS,
  monotonicMs: () => systemClock.monotonicMs() + HOUR_MS,
}

/** A new engine on a client of its own, as a process has it; the caller's hooks close both. */
type Open = (clock?: Clock) => Engine

/** What only several clients at the same moment show of shared leases on an engine that keeps readers in the row of the resource. */
export function testReaders(open: Open): void {
  test.each([[['one']], [['one', 'two']]])(
    'readers of %j who release at the same moment leave nothing in a writer’s way',
    async (names) => {
      const engines = Array.from({ length: 3 }, () => open())
      for (let round = 0; round < ROUNDS; round++) {
        const readers = await Promise.all(engines.map((engine) => grant(engine, { resources: names, shared: true })))
        const releases = await Promise.all(readers.map((reader, index) => engines[index]!.release(reader)))
        expect(releases.map(({ ours }) => ours)).toEqual([true, true, true])
        const writer = await grant(engines[round % 3]!, { resources: names })
        for (const reader of readers) expect(writer.token).toBeGreaterThan(reader.token)
        await engines[0]!.release(writer)
      }
    },
  )

  test('readers and writers of four clients never overlap, and writers have greater tokens than all before them', async () => {
    expect(await contend(open)).toEqual({ sections: CLIENTS * SECTIONS, failures: [] })
  })

  test('a batch of readers and writers is renewed, each by its own ttl, and only what is gone is lost', async () => {
    const [engine, other] = [open(), open()]
    const one = request().resources
    const together = await Promise.all(
      Array.from({ length: 30 }, () => grant(engine, { resources: one, shared: true })),
    )
    const pairs = await Promise.all(
      ['x', 'y'].map((name) => grant(engine, { resources: [...one, `${one[0]} ${name}`], shared: true })),
    )
    const writers = await Promise.all(Array.from({ length: 10 }, () => grant(engine)))
    const batch = [...together, ...writers, ...pairs].map((lease, index) => ({
      ...lease,
      ttlMs: 20_000 + 1000 * index,
    }))
    expect(await engine.extend(batch)).toEqual(batch.map(() => ({ kind: 'held' })))
    const shown = await leasesOf(other, one[0])
    expect(shown.map(({ owner }) => owner).sort()).toEqual([...together, ...pairs].map(({ owner }) => owner).sort())
    for (const { owner, token, remainingMs, shared } of shown) {
      const lease = batch.find((candidate) => candidate.owner === owner)!
      expect({ token, shared }).toEqual({ token: lease.token, shared: true })
      expect(remainingMs).toBeLessThanOrEqual(lease.ttlMs)
      expect(remainingMs).toBeGreaterThan(lease.ttlMs - 15_000)
    }
    const gone = [together[3]!, writers[4]!, pairs[1]!]
    for (const lease of gone) expect(await other.release(lease)).toMatchObject({ ours: true })
    const isGone = new Set(gone.map(({ owner }) => owner))
    expect(await engine.extend(batch)).toEqual(
      batch.map(({ owner }) => ({ kind: isGone.has(owner) ? 'lost' : 'held' })),
    )
  })

  test('the clock of a reader plays no part', async () => {
    const [early, plain] = [open(AN_HOUR_AHEAD), open()]
    const reader = await grant(early, { shared: true, ttlMs: 20_000 })
    const { resources } = reader
    const second = await grant(plain, { resources, shared: true })
    expect(second.token).toBe(reader.token)
    const [info] = (await leasesOf(plain, resources[0])).filter(({ owner }) => owner === reader.owner)
    expect(info!.remainingMs).toBeLessThanOrEqual(20_000)
    expect(info!.remainingMs).toBeGreaterThan(5000)
    await plain.release(second)
    expect(await plain.acquire(request({ resources }))).toMatchObject({ kind: 'refused', holder: reader.owner })
    expect(await early.extend([reader])).toEqual([{ kind: 'held' }])
  })

  test('a writer that waits keeps new readers out of all its resources, until it has had its turn', async () => {
    const [one, two] = [open(), open()]
    const names = ['a', 'b'].map((name) => `${request().resources[0]} ${name}`)
    await one.release(await grant(one, { resources: names }))
    const reader = await grant(one, { resources: [names[0]!], shared: true })
    const asked: LeaseRequest = request({ resources: names, waits: true })
    const refusal = await two.acquire(asked)
    expect(refusal).toMatchObject({ kind: 'refused', reason: 'held', holder: reader.owner })
    expect(refusal).toHaveProperty(
      'remainingMs',
      expect.toSatisfy((ms: number) => ms > 0 && ms <= COME_AGAIN_MS),
    )
    for (const name of names) {
      const kept = await one.acquire(request({ resources: [name], shared: true }))
      expect(kept).toMatchObject({ kind: 'refused', reason: 'held' })
      expect(kept).toHaveProperty(
        'remainingMs',
        expect.toSatisfy((ms: number) => ms > 0 && ms <= WANTED_MS),
      )
    }
    expect(await one.extend([reader])).toEqual([{ kind: 'held' }])
    await one.release(reader)
    const writer = await grant(two, asked)
    await two.release(writer)
    for (const name of names) await grant(one, { resources: [name], shared: true })
  })

  test('a writer gets in at the end of the last reader, and not at that of one which was released or made shorter', async () => {
    const [one, two] = [open(), open()]
    const long = await grant(one, { shared: true, ttlMs: 60_000 })
    const released = long.resources
    await grant(two, { resources: released, shared: true, ttlMs: 1000 })
    expect(await one.release(long)).toMatchObject({ ours: true })
    const first = await grant(one, { shared: true, ttlMs: 60_000 })
    const shortened = first.resources
    const second = await grant(one, { resources: shortened, shared: true, ttlMs: 60_000 })
    const shorter = [first, second].map((lease) => ({ ...lease, ttlMs: 1000 }))
    expect(await one.extend(shorter)).toEqual([{ kind: 'held' }, { kind: 'held' }])
    for (const resources of [released, shortened]) {
      await expect.poll(() => two.acquire(request({ resources }))).toMatchObject({ kind: 'granted' })
    }
  })

  test('what readers have left who ended by themselves is not in the way of others', async () => {
    const [one, two] = [open(), open()]
    const dead = await grant(one, { shared: true, ttlMs: 300 })
    const { resources } = dead
    const stays = await grant(two, { resources, shared: true })
    const owners = async (): Promise<string[]> => (await leasesOf(two, resources[0])).map(({ owner }) => owner).sort()
    await expect.poll(owners).toEqual([stays.owner])
    const joins = await grant(one, { resources, shared: true, ttlMs: 40_000 })
    expect(await owners()).toEqual([stays.owner, joins.owner].sort())
    // The one that lasts longest is released, so that the end of the other is the end of both.
    await one.release(joins)
    const [info] = await leasesOf(two, resources[0])
    expect(info!.remainingMs).toBeLessThanOrEqual(30_000)
    expect(await one.acquire(request({ resources }))).toHaveProperty(
      'remainingMs',
      expect.toSatisfy((ms: number) => ms <= 30_000),
    )
  })
}

/** A grant to a reader whose answer is lost is undone, and nothing of the other readers is. `lose` makes the next answer get lost. */
export async function testLostGrant(behind: Engine, other: Engine, lose: () => void): Promise<void> {
  await grant(behind)
  const stays: LeaseRef = await grant(other, { shared: true })
  const { resources } = stays
  const asked = request({ resources, shared: true })
  lose()
  await expect(behind.acquire(asked)).rejects.toMatchObject({ code: 'ENGINE', transient: true })
  const owners = async (): Promise<string[]> => (await leasesOf(other, resources[0])).map(({ owner }) => owner)
  await expect.poll(owners).toEqual([stays.owner])
  expect(await other.extend([{ ...asked, token: stays.token }, stays])).toEqual([{ kind: 'lost' }, { kind: 'held' }])
  await other.release(stays)
  await grant(other, { resources })
}

async function contend(open: Open): Promise<{ sections: number; failures: readonly string[] }> {
  const failures: string[] = []
  const observe = (event: LockEvent): void => {
    if (event.type === 'failed' || event.type === 'doubtful') failures.push(event.cause.message)
    if (event.type === 'lost') failures.push(`lost: ${event.reason}`)
  }
  const clients = Array.from({ length: CLIENTS }, () => createLocks(open(), { ttl: '20s', observe }))
  const prefix = request().resources[0]!
  const inside = new Map<string, { readers: number; writers: number; highest: bigint; written: bigint }>()
  let sections = 0
  try {
    await Promise.all(
      clients.flatMap((locks, client) =>
        Array.from({ length: SECTIONS }, async (_, index) => {
          const shared = (client + index) % 3 !== 0
          const names = [`${prefix} ${index % 2}`, ...(index % 4 === 0 ? [`${prefix} ${1 - (index % 2)}`] : [])]
          await locks.using(names, { shared, wait: '50s' }, async (lease) => {
            const kind = shared ? 'readers' : 'writers'
            for (const name of names) {
              const there = inside.get(name) ?? { readers: 0, writers: 0, highest: 0n, written: 0n }
              inside.set(name, there)
              there[kind]++
              expect(there.writers === 0 ? 1 : there.readers + there.writers).toBe(1)
              expect(lease.token).toBeGreaterThan(shared ? there.written : there.highest)
              if (!shared) there.written = lease.token
              if (lease.token > there.highest) there.highest = lease.token
            }
            // Renewals meet the attempts and releases of the others on the same rows.
            for (let i = 0; i < 2; i++) await Promise.all([lease.extend(), pause(1)])
            for (const name of names) inside.get(name)![kind]--
            sections++
          })
        }),
      ),
    )
  } finally {
    for (const locks of clients) await locks.close()
  }
  return { sections, failures }
}
