import { expect, test } from 'vitest'
import type { Engine, LeaseRef } from '../../src/engine.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { startWorker } from '../../harness/child.ts'
import { until } from '../../harness/until.ts'
import { collect, requestFor } from './requests.ts'
import type { RaceSetup } from './trials.ts'

/** How many hold a resource or wait for it in the servers' own queue. */
export async function queueLength(engine: Engine, resource: string): Promise<number> {
  const infos = await collect(engine.inspect(resource))
  return infos.length === 0 ? 0 : infos.length + infos[0]!.waiters!
}

/** Readers and writers of one queue, and what has happened: `r0+` when the first reader is let in, `r0-` when it goes. */
export interface MixedQueue {
  readonly events: readonly string[]
  readonly tokens: readonly bigint[]
  /** Is over when everyone was let in and has gone. A reader goes when the readers beside it are in. */
  readonly over: Promise<unknown>
}

/**
 * Takes one place after the other in the servers' own queue, on the engines in turn: `r` for a reader, `w` for a writer. Others
 * hold the resource and wait for it meanwhile.
 */
export async function lineUp(engines: readonly Engine[], resource: string, kinds: string): Promise<MixedQueue> {
  const events: string[] = []
  const tokens: bigint[] = []
  const others = await queueLength(engines[0]!, resource)
  const all: Promise<void>[] = []
  for (const [index, kind] of kinds.split('').entries()) {
    const engine = engines[index % engines.length]!
    const request = { ...requestFor(resource), shared: kind === 'r' }
    const besides = kind === 'r' ? neighbours(kinds, index) : []
    const pass = async (): Promise<void> => {
      const { token } = await engine.enqueue!(request, new AbortController().signal)
      events.push(`${kind}${index}+`)
      tokens[index] = token
      await until(() => besides.every((each) => events.includes(`r${each}+`)), { what: 'the readers beside it' })
      events.push(`${kind}${index}-`)
      expect(await engine.release({ ...request, token })).toMatchObject({ ours: true })
    }
    all.push(pass())
    const isThere = async (): Promise<boolean> => (await queueLength(engines[0]!, resource)) === others + index + 1
    await until(isThere, { what: `place ${index} in the queue`, withinMs: 40_000 })
  }
  return { events, tokens, over: Promise.all(all) }
}

/** The readers right before and after this one. */
function neighbours(kinds: string, index: number): number[] {
  const from = kinds.lastIndexOf('w', index) + 1
  const next = kinds.indexOf('w', index)
  const to = next < 0 ? kinds.length : next
  return Array.from({ length: to - from }, (_, offset) => from + offset)
}

/** Which were let in side by side, in the order of the groups: `['w0', 'r1 r2']`. Those of a group may come in any order. */
export function groupsOf(events: readonly string[]): string[] {
  const groups: string[][] = []
  let inside = 0
  for (const event of events) {
    if (event.endsWith('-')) inside--
    else if (inside++ === 0) groups.push([event.slice(0, -1)])
    else groups.at(-1)!.push(event.slice(0, -1))
  }
  return groups.map((group) => group.sort().join(' '))
}

/** Sections on sets of resources that cross each other, some shared: no writer is ever beside anyone. */
export async function race(all: readonly Locks[], sets: readonly (readonly string[])[]): Promise<void> {
  const readers = new Map<string, number>()
  const writers = new Map<string, number>()
  const written = new Map<string, bigint>()
  let sharing = 0
  const found: string[] = []
  const section = (locks: Locks, set: readonly string[], shared: boolean): Promise<void> =>
    locks.using(set, { shared, wait: '50s' }, async ({ token }) => {
      const mine = shared ? readers : writers
      for (const name of set) {
        const [count, others] = [add(mine, name, 1), add(shared ? writers : readers, name, 0)]
        if (others > 0 || (!shared && count > 1)) found.push(`a writer of ${name} was not alone`)
        if (token <= (written.get(name) ?? 0n)) found.push(`${token} is not greater than the last writer's`)
        if (shared) sharing = Math.max(sharing, count)
        else written.set(name, token)
      }
      await new Promise((resolve) => setTimeout(resolve, 2))
      for (const name of set) add(mine, name, -1)
    })
  const work = all.flatMap((locks, turn) =>
    sets.flatMap((set, index) => [0, 1, 2].map((kind) => section(locks, set, (kind + turn + index) % 3 > 0))),
  )
  await Promise.all(work)
  expect(found).toEqual([])
  expect(sharing).toBeGreaterThan(1)
}

function add(to: Map<string, number>, name: string, count: number): number {
  to.set(name, (to.get(name) ?? 0) + count)
  return to.get(name)!
}

/** What a writer that waits must see when a process with a reader is killed. */
export function readerTrials(setup: RaceSetup & { readonly nextWithinMs: number }): void {
  const { connector, ttlMs = 6000, nextWithinMs } = setup
  const title = 'after SIGKILL of one reader and the release of the other the writer gets in, with a greater token'
  test(title, { timeout: 120_000 }, async () => {
    await using servers = await setup.start(ttlMs)
    await using one = createLocks(await servers.engine(), { ttl: ttlMs })
    await using two = createLocks(await servers.engine(), { ttl: ttlMs })
    const keep = new URL('../process/workers/keep.mjs', import.meta.url)
    await using killed = startWorker<{ type: string; token: string }>(keep, {
      args: [connector, String(ttlMs), 'shared'],
      env: servers.env,
    })
    const { token } = await killed.next(({ type }) => type === 'acquired', { withinMs: 40_000, what: 'lease' })
    const other = await one.acquire('trial', { shared: true })
    const waiting = two.acquire('trial', { wait: nextWithinMs })
    await until(async () => (await queueLength(one.engine, 'trial')) === 3, { what: 'a writer that waits' })
    await killed.kill()
    expect(other.held).toBe(true)
    expect(await other.release()).toBe(true)
    await using writer = await waiting
    expect(writer.token).toBeGreaterThan(BigInt(token))
    expect(writer.token).toBeGreaterThan(other.token)
  })
}

/** A reader that is granted at once. */
export async function reader(engine: Engine, resources: string | string[], ttlMs?: number): Promise<LeaseRef> {
  const request = { ...requestFor(resources, ttlMs), shared: true }
  const outcome = await engine.acquire(request)
  if (outcome.kind === 'refused') throw new Error(`${request.resources.join(', ')} cannot be shared`)
  return { ...request, token: outcome.token }
}
