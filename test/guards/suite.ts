import { describe, expect, test } from 'vitest'
import type { Fenced, Guard, GuardEvent, GuardOptions } from '../../src/guards/index.ts'

/** A store, guards of it, and how one reads and writes a number in it. */
export interface Bench<G extends Guard> {
  /** A new guard on the same store, as another process would have it. */
  readonly guard: (options?: GuardOptions) => G
  /** The number kept for a resource, 0 at first, read without a look at any fence. */
  readonly read: (resource: string) => Promise<number>
  /** Replaces the number kept for each resource of the lease, guarded. */
  readonly write: (guard: G, lease: Fenced, value: number) => Promise<void>
  /** Raises the fence before the first read, where that is not `guard.enter`. */
  readonly enter?: (guard: G, lease: Fenced) => Promise<void>
  readonly adopt?: (guard: G, lease: Fenced, from: string) => Promise<void>
}

export interface SuiteOptions {
  /** Its resources are fences of their own: several at once are not all or none. */
  readonly oneByOne?: boolean
}

let resources = 0

/** A resource that no other test uses. */
export function freshResource(): string {
  return `account:${++resources}`
}

export function leaseOf(resources: string | readonly string[], token: bigint, engine = 'redis:'): Fenced {
  return { resources: typeof resources === 'string' ? [resources] : resources, token, engine }
}

/** Lets one side of a test wait for the other. */
export function gate(): { readonly opened: Promise<void>; open: () => void } {
  const opening = new AbortController()
  const opened = new Promise<void>((resolve) => opening.signal.addEventListener('abort', () => resolve()))
  return { opened, open: () => opening.abort() }
}

/** What every guard must do. */
export function guardSuite<G extends Guard>(
  name: string,
  bench: () => Bench<G>,
  { oneByOne = false }: SuiteOptions = {},
): void {
  const enter = (guard: G, lease: Fenced): Promise<void> => bench().enter?.(guard, lease) ?? guard.enter(lease)
  const adopt = (guard: G, lease: Fenced, from: string): Promise<void> =>
    bench().adopt?.(guard, lease, from) ?? guard.adopt(lease, from)

  describe(name, () => {
    test('the first token of a resource passes, and equal and greater ones after it', async () => {
      const { guard, read, write } = bench()
      const resource = freshResource()
      await write(guard(), leaseOf(resource, 7n), 1)
      await write(guard(), leaseOf(resource, 7n), 2)
      await enter(guard(), leaseOf(resource, 7n))
      await write(guard(), leaseOf(resource, 8n), 3)
      expect(await read(resource)).toBe(3)
    })

    test('a lower token is rejected with the resource and both tokens, changes nothing, is counted and told', async () => {
      const { guard, read, write } = bench()
      const resource = freshResource()
      await write(guard(), leaseOf(resource, 8n), 1)
      const events: GuardEvent[] = []
      const watched = guard({ observe: (event) => void events.push(event) })
      const stale = { name: 'StaleTokenError', code: 'STALE_TOKEN', resources: [resource], token: 7n, seen: 8n }
      await expect(write(watched, leaseOf(resource, 7n), 2)).rejects.toMatchObject(stale)
      await expect(enter(watched, leaseOf(resource, 7n))).rejects.toMatchObject(stale)
      expect(await read(resource)).toBe(1)
      expect(watched.rejections).toBe(2)
      const told = { type: 'rejected', reason: 'stale', resource, token: 7n, engine: 'redis:' }
      expect(events).toMatchObject([told, told])
      expect(events[0]!.seen).toEqual({ token: 8n, engine: 'redis:' })
      await write(watched, leaseOf(resource, 8n), 3)
      expect(watched.rejections).toBe(2)
    })

    test('tokens of another engine are refused until they are adopted, greater or not', async () => {
      const { guard, read, write } = bench()
      const resource = freshResource()
      const watched = guard()
      await write(guard(), leaseOf(resource, 500n, 'redis:'), 1)
      const foreign = { name: 'ForeignTokenError', code: 'FOREIGN_TOKEN', engine: 'etcd:', seenEngine: 'redis:' }
      for (const token of [3n, 500n, 900n]) {
        await expect(write(watched, leaseOf(resource, token, 'etcd:'), 2)).rejects.toMatchObject(foreign)
        await expect(enter(watched, leaseOf(resource, token, 'etcd:'))).rejects.toMatchObject(foreign)
      }
      await expect(adopt(watched, leaseOf(resource, 3n, 'etcd:'), 'consul:')).rejects.toMatchObject(foreign)
      expect(await read(resource)).toBe(1)
      expect(watched.rejections).toBe(7)

      await adopt(watched, leaseOf(resource, 3n, 'etcd:'), 'redis:')
      await write(watched, leaseOf(resource, 3n, 'etcd:'), 2)
      await expect(write(watched, leaseOf(resource, 2n, 'etcd:'), 3)).rejects.toMatchObject({ seen: 3n })
      await expect(write(watched, leaseOf(resource, 501n, 'redis:'), 4)).rejects.toMatchObject({
        code: 'FOREIGN_TOKEN',
        engine: 'redis:',
        seenEngine: 'etcd:',
      })
      expect(await read(resource)).toBe(2)
    })

    test('adopting again, or late, never lowers a fence of the same engine', async () => {
      const { guard, write } = bench()
      const resource = freshResource()
      await write(guard(), leaseOf(resource, 500n, 'redis:'), 1)
      await adopt(guard(), leaseOf(resource, 4n, 'etcd:'), 'redis:')
      await adopt(guard(), leaseOf(resource, 5n, 'etcd:'), 'redis:')
      await expect(adopt(guard(), leaseOf(resource, 4n, 'etcd:'), 'redis:')).rejects.toMatchObject({ seen: 5n })
      await expect(write(guard(), leaseOf(resource, 4n, 'etcd:'), 2)).rejects.toMatchObject({ seen: 5n })
      await expect(adopt(guard(), leaseOf(resource, 499n, 'etcd:'), 'etcd:')).resolves.toBeUndefined()
      await expect(adopt(guard(), leaseOf(resource, 498n, 'etcd:'), 'etcd:')).rejects.toMatchObject({ seen: 499n })
    })

    test('tokens above 2^53 that differ by one are told apart', async () => {
      const { guard, read, write } = bench()
      const resource = freshResource()
      for (const base of [2n ** 53n, 2n ** 62n]) {
        await write(guard(), leaseOf(resource, base + 1n), 1)
        await expect(write(guard(), leaseOf(resource, base), 2)).rejects.toMatchObject({ token: base, seen: base + 1n })
        await write(guard(), leaseOf(resource, base + 2n), 3)
        await expect(enter(guard(), leaseOf(resource, base + 1n))).rejects.toMatchObject({ seen: base + 2n })
      }
      expect(await read(resource)).toBe(3)
    })

    test('a token with more digits is the greater one', async () => {
      const { guard, write } = bench()
      const resource = freshResource()
      await write(guard(), leaseOf(resource, 9n), 1)
      await write(guard(), leaseOf(resource, 10n), 2)
      await expect(write(guard(), leaseOf(resource, 9n), 3)).rejects.toMatchObject({ seen: 10n })
    })

    test('without enter, the late write of an older holder is taken and then lost', async () => {
      const { guard, read, write } = bench()
      const resource = freshResource()
      const [older, newer] = [leaseOf(resource, 1n), leaseOf(resource, 2n)]
      await write(guard(), older, 100)
      const seenByNewer = await read(resource)
      await write(guard(), older, 100 - 30)
      await write(guard(), newer, seenByNewer - 20)
      // Both withdrawals were accepted, and only one of them is in the balance.
      expect(await read(resource)).toBe(80)
    })

    test('with enter before the first read, the late write is rejected and nothing is lost', async () => {
      const { guard, read, write } = bench()
      const resource = freshResource()
      const [older, newer] = [leaseOf(resource, 1n), leaseOf(resource, 2n)]
      await write(guard(), older, 100)
      await enter(guard(), newer)
      const seenByNewer = await read(resource)
      await expect(write(guard(), older, 100 - 30)).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: 2n })
      await write(guard(), newer, seenByNewer - 20)
      expect(await read(resource)).toBe(80)
    })

    test('a lease of several resources is refused when one of them has seen a newer token', async () => {
      const { guard, read, write } = bench()
      const pair = [freshResource(), freshResource()]
      await write(guard(), leaseOf(pair, 5n), 1)
      await write(guard(), leaseOf(pair[1]!, 7n), 2)
      await expect(enter(guard(), leaseOf(pair, 6n))).rejects.toMatchObject({
        resources: [pair[1]],
        token: 6n,
        seen: 7n,
      })
      await write(guard(), leaseOf(pair.toReversed(), 8n), 3)
      expect(await Promise.all(pair.map(read))).toEqual([3, 3])
    })

    test('leases on the same resources in any order, all at once: no deadlock, and the highest token wins', async () => {
      const { guard, write } = bench()
      const [a, b, c] = [freshResource(), freshResource(), freshResource()]
      const sets = [
        [a, b, c],
        [c, b, a],
        [b, a],
        [c, a],
        [b, c],
      ]
      const atOnce = async (first: number, step: (lease: Fenced) => Promise<void>): Promise<void> => {
        const leases = Array.from({ length: 20 }, (_, index) =>
          leaseOf(sets[index % sets.length]!, BigInt(first + index)),
        )
        const outcomes = await Promise.allSettled(leases.map(step))
        const failures = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []))
        expect(failures.filter(({ code }) => code !== 'STALE_TOKEN')).toEqual([])
      }
      // Where a store refuses instead of making one wait (MongoDB), the last of twenty gets in after many tries.
      const patient = { requestTimeout: '50s' } as const
      await atOnce(1, (lease) => enter(guard(patient), lease))
      await atOnce(21, (lease) => write(guard(patient), lease, Number(lease.token)))
      await write(guard(), leaseOf([a, b, c], 40n), 40)
      await expect(write(guard(), leaseOf([a, b, c], 39n), 39)).rejects.toMatchObject({ code: 'STALE_TOKEN' })
    })

    test('what is not a lease, and options that do not exist, are refused by name', async () => {
      const { guard } = bench()
      const wrong = (lease: unknown): Promise<void> => guard().enter(lease as Fenced)
      await expect(wrong(undefined)).rejects.toThrow(
        new TypeError('lease: expected a lease, the first argument, got undefined'),
      )
      await expect(wrong(leaseOf([], 1n))).rejects.toThrow(RangeError)
      await expect(wrong({ ...leaseOf('a', 1n), token: 1 })).rejects.toThrow('token: expected a bigint, got 1')
      await expect(wrong({ ...leaseOf('a', 1n), token: '1' })).rejects.toThrow(
        "token: expected a bigint, got '1'; convert a token that is text by BigInt(text)",
      )
      await expect(wrong(leaseOf('a', -1n))).rejects.toThrow(
        'token: expected a number from 0 to 9223372036854775807, got -1',
      )
      await expect(wrong(leaseOf('a', 2n ** 63n))).rejects.toThrow(RangeError)
      await expect(wrong(leaseOf('a', 1n, ''))).rejects.toThrow('engine: expected the identity of an engine')
      await expect(guard().adopt(leaseOf('a', 1n), undefined as never)).rejects.toThrow(
        'from: expected the identity of an engine, got undefined',
      )
      expect(() => guard({ obsreve: () => undefined } as GuardOptions)).toThrow("got 'obsreve'")
      expect(() => guard({ observe: 1 as never })).toThrow('observe: expected a function, got 1')
      expect(() => guard({ requestTimeout: 'soon' as never })).toThrow('requestTimeout: expected')
    })

    if (oneByOne) return
    test('a lease that is refused for one of its resources raises none of the others', async () => {
      const { guard, read, write } = bench()
      const pair = [freshResource(), freshResource()]
      await write(guard(), leaseOf(pair[1]!, 7n), 1)
      await expect(write(guard(), leaseOf(pair, 6n), 2)).rejects.toMatchObject({ seen: 7n })
      await write(guard(), leaseOf(pair[0]!, 3n), 3)
      expect(await Promise.all(pair.map(read))).toEqual([3, 1])
    })
  })
}
