import { describe, expect, test } from 'vitest'
import type { Effect, EffectOptions, Fenced, GuardOptions, Run, RunStore } from '../../src/guards/index.ts'
import { startProxy, type Proxy } from '../../harness/faults/proxy.ts'
import { until } from '../../harness/until.ts'
import { freshResource, leaseOf } from './suite.ts'

/** What the work is to do, besides adding one to a counter. */
export interface Task {
  readonly counter: string
  /** What it returns; default nothing. */
  readonly result?: unknown
  /** It fails with this, after it has written where the store can undo that. */
  readonly failure?: string
}

export interface OnceBench<G> {
  /** A new guard on the same store, as another process would have it. */
  readonly guard: (options?: GuardOptions) => G
  /** Adds one to a counter, once. */
  readonly add: (guard: G, lease: Fenced, key: string, task: Task, options?: EffectOptions) => Promise<Effect<unknown>>
  readonly read: (counter: string) => Promise<number>
  /** Whether there is a record of this key. */
  readonly has: (key: string) => Promise<boolean>
  /** When its record ends, as the store has it; undefined for never. */
  readonly endsAt: (key: string) => Promise<number | undefined>
  /** Makes the time of a record be over. */
  readonly end: (key: string) => Promise<void>
  /** A guard whose connections pass through a proxy. */
  readonly through: (proxy: Proxy, options?: GuardOptions) => Promise<{ guard: G; close: () => Promise<void> }>
  readonly port: () => number
  /** A part of the request that commits. */
  readonly commit: string
}

let keys = 0

export function freshKey(): string {
  return `effect:${++keys}:${process.pid}`
}

/** Tries again for as long as the guard says that this may help. */
async function persistently<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if ((error as { transient?: boolean }).transient !== true) throw error
    }
  }
}

/** What `once` must do on every store. */
export function onceSuite<G>(name: string, bench: () => OnceBench<G>): void {
  describe(`${name}, once`, () => {
    test('the first call runs the work; a repeat of any later holder gets the same and does not', async () => {
      const { guard, add, read } = bench()
      const [counter, key] = [freshResource(), freshKey()]
      const before = Date.now()
      const first = await add(guard(), leaseOf(counter, 7n), key, { counter, result: { receipt: 'a' } })
      expect(first).toEqual({ ran: true, value: { receipt: 'a' }, at: expect.any(Number), token: 7n })
      // The store is on this machine, and so is its clock.
      expect(first.at).toBeGreaterThanOrEqual(before - 1)
      expect(first.at).toBeLessThanOrEqual(Date.now() + 1)
      for (const token of [7n, 8n, 2n ** 53n + 1n]) {
        const repeat = await add(guard(), leaseOf(counter, token), key, { counter, result: 'another' })
        expect(repeat).toEqual({ ...first, ran: false })
      }
      expect(await read(counter)).toBe(1)
    })

    test('a token above 2^53 is recorded as it is', async () => {
      const { guard, add } = bench()
      const [counter, key] = [freshResource(), freshKey()]
      const token = 2n ** 62n + 1n
      await add(guard(), leaseOf(counter, token), key, { counter })
      expect((await add(guard(), leaseOf(counter, token + 1n), key, { counter })).token).toBe(token)
    })

    test('another key, or a lease on another resource with the same key: the key decides', async () => {
      const { guard, add, read } = bench()
      const [counter, key] = [freshResource(), freshKey()]
      await add(guard(), leaseOf(freshResource(), 1n), key, { counter })
      expect(await add(guard(), leaseOf([freshResource(), freshResource()], 1n), key, { counter })).toMatchObject({
        ran: false,
      })
      expect(await add(guard(), leaseOf(freshResource(), 1n), freshKey(), { counter })).toMatchObject({ ran: true })
      expect(await read(counter)).toBe(2)
    })

    test('results of all kinds that JSON has come back as they were', async () => {
      const { guard, add } = bench()
      const lease = leaseOf(freshResource(), 1n)
      const deep = { a: [1, { b: [null, true, 'x'] }], 'with space': { é: '\u0000"\\\u2028😀' } }
      for (const result of [undefined, 'text', '', '0', 7, -1.5, 0, true, false, [1, [2]], deep]) {
        const key = freshKey()
        const first = await add(guard(), lease, key, { counter: 'any', result })
        const repeat = await add(guard(), lease, key, { counter: 'any', result: 'another' })
        expect([first.value, repeat.value]).toEqual([result, result])
        expect([first.ran, repeat.ran]).toEqual([true, false])
      }
    })

    test('work that fails records nothing, and runs with the next call', async () => {
      const { guard, add, read, has } = bench()
      const [counter, key] = [freshResource(), freshKey()]
      const lease = leaseOf(counter, 1n)
      await expect(add(guard(), lease, key, { counter, failure: 'MINE of my own' })).rejects.toThrow('MINE of my own')
      expect([await has(key), await read(counter)]).toEqual([false, 0])
      expect(await add(guard(), lease, key, { counter, result: 1 })).toMatchObject({ ran: true, value: 1 })
      expect([await has(key), await read(counter)]).toEqual([true, 1])
    })

    test('a stale holder is refused before anything, also where a result is recorded', async () => {
      const { guard, add, read, has } = bench()
      const [counter, key, other] = [freshResource(), freshKey(), freshKey()]
      await add(guard(), leaseOf(counter, 8n), key, { counter, result: 'secret' })
      const stale = { code: 'STALE_TOKEN', resources: [counter], token: 7n, seen: 8n }
      await expect(add(guard(), leaseOf(counter, 7n), key, { counter })).rejects.toMatchObject(stale)
      await expect(add(guard(), leaseOf(counter, 7n), other, { counter })).rejects.toMatchObject(stale)
      const foreign = add(guard(), leaseOf(counter, 9n, 'etcd:'), other, { counter })
      await expect(foreign).rejects.toMatchObject({ code: 'FOREIGN_TOKEN' })
      expect([await read(counter), await has(other)]).toEqual([1, false])
    })

    test('twenty calls with one key at once, on twenty resources: one effect, and one result for all', async () => {
      const { guard, add, read } = bench()
      const [counter, key] = [freshResource(), freshKey()]
      // The store has its tables; otherwise this would be about creating them.
      await add(guard(), leaseOf(freshResource(), 1n), freshKey(), { counter: 'any' })
      const patient = { requestTimeout: '50s' } as const
      const effects = await Promise.all(
        Array.from({ length: 20 }, (_, result) => {
          const lease = leaseOf(freshResource(), 1n)
          return persistently(() => add(guard(patient), lease, key, { counter, result }))
        }),
      )
      expect(await read(counter)).toBe(1)
      const [winner, ...others] = effects.filter(({ ran }) => ran)
      expect(others).toEqual([])
      expect(new Set(effects.map(({ value }) => value))).toEqual(new Set([winner!.value]))
    })

    test('twenty holders of one resource at once, with one key: one effect, and only stale ones fail', async () => {
      const { guard, add, read } = bench()
      const [counter, key] = [freshResource(), freshKey()]
      const patient = { requestTimeout: '50s' } as const
      const outcomes = await Promise.allSettled(
        Array.from({ length: 20 }, (_, index) => {
          const lease = leaseOf(counter, BigInt(index + 1))
          return persistently(() => add(guard(patient), lease, key, { counter, result: index }))
        }),
      )
      const failures = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []))
      expect(failures.filter(({ code }) => code !== 'STALE_TOKEN')).toEqual([])
      expect(await read(counter)).toBe(1)
      expect(outcomes.filter((outcome) => outcome.status === 'fulfilled' && outcome.value.ran)).toHaveLength(1)
    })

    test('a key that cannot be is refused with both sizes, and leaves nothing behind', async () => {
      const { guard, add, read, has } = bench()
      const counter = freshResource()
      const lease = leaseOf(counter, 5n)
      const tooLong = 'é'.repeat(513)
      await expect(add(guard(), lease, tooLong, { counter })).rejects.toThrow(
        new RangeError('key: expected at most 1024 bytes, got 1026; take a hash of it'),
      )
      await expect(add(guard(), lease, '', { counter })).rejects.toThrow('key: expected a name, got an empty string')
      await expect(add(guard(), lease, 7 as never, { counter })).rejects.toThrow('key: expected a string, got 7')
      await expect(add(guard(), lease, 'a\nb', { counter })).rejects.toThrow('without control characters')
      expect([await read(counter), await has(tooLong)]).toEqual([0, false])
      // No fence was raised: an older holder is not stale.
      const longest = `${freshKey()}${'é'.repeat(500)}`
      expect(await add(guard(), leaseOf(counter, 4n), longest, { counter })).toMatchObject({ ran: true })
      expect(await add(guard(), lease, longest, { counter })).toMatchObject({ ran: false })
    })

    test('keys that differ by case or by a space at the end are different ones', async () => {
      const { guard, add, read } = bench()
      const [counter, key] = [freshResource(), freshKey()]
      for (const one of [key, key.toUpperCase(), `${key} `]) {
        expect(await add(guard(), leaseOf(counter, 1n), one, { counter })).toMatchObject({ ran: true })
      }
      expect(await read(counter)).toBe(3)
    })

    test('a record is kept forever, or with keep until its time is over; then the work runs again', async () => {
      const { guard, add, read, has, endsAt, end } = bench()
      const counter = freshResource()
      const [forever, bounded] = [freshKey(), freshKey()]
      const lease = leaseOf(counter, 1n)
      await add(guard(), lease, forever, { counter })
      expect(await endsAt(forever)).toBeUndefined()
      const { at } = await add(guard(), lease, bounded, { counter }, { keep: '365d' })
      const keptMs = (await endsAt(bounded))! - at
      expect(Math.abs(keptMs - 365 * 86_400_000)).toBeLessThan(60_000)
      expect(await add(guard(), lease, bounded, { counter }, { keep: '1d' })).toMatchObject({ ran: false })
      await end(bounded)
      // Old records go with a later call that keeps for a time, where the server does not delete them by itself.
      await add(guard(), lease, freshKey(), { counter: 'any' }, { keep: '365d' })
      await until(async () => !(await has(bounded)), { what: 'the record is gone', withinMs: 30_000 })
      expect(await add(guard(), lease, bounded, { counter })).toMatchObject({ ran: true })
      expect([await has(forever), await read(counter)]).toEqual([true, 3])
      await expect(add(guard(), lease, freshKey(), { counter }, { keep: 0 })).rejects.toThrow('keep: expected 1 ms to')
      await expect(add(guard(), lease, freshKey(), { counter }, { kep: 1 } as never)).rejects.toThrow("got 'kep'")
    })

    test('the commit arrives and its answer is lost: a transient error, or the result; a repeat finds out', async () => {
      const { add, read, through, port, commit, guard } = bench()
      await using proxy = await startProxy(port())
      const { guard: far, close } = await through(proxy, { requestTimeout: '5s' })
      const [counter, key] = [freshResource(), freshKey()]
      const lease = leaseOf(counter, 1n)
      // So that its scripts are known, and nothing else is asked for.
      await add(far, lease, freshKey(), { counter: 'any' })
      proxy.cutOnNextReply(commit)
      const outcome = await add(far, lease, key, { counter, result: 'x' }).catch((error: unknown) => error)
      expect(proxy.lostReplies).toBe(1)
      expect([
        { ran: true, value: 'x' },
        { code: 'GUARD', transient: true },
      ]).toContainEqual(expect.objectContaining(essence(outcome)))
      expect(await add(guard(), leaseOf(counter, 2n), key, { counter })).toMatchObject({ ran: false, value: 'x' })
      expect(await read(counter)).toBe(1)
      await close()
    })

    test('the commit never arrives: a transient error, and a repeat runs the work', async () => {
      const { add, read, through, port, commit, guard } = bench()
      await using proxy = await startProxy(port())
      const { guard: far, close } = await through(proxy, { requestTimeout: 500 })
      const [counter, key] = [freshResource(), freshKey()]
      await add(far, leaseOf(counter, 1n), freshKey(), { counter: 'any' })
      proxy.dropRequests(commit)
      await expect(add(far, leaseOf(counter, 1n), key, { counter, result: 'x' })).rejects.toMatchObject({
        code: 'GUARD',
        transient: true,
      })
      expect(proxy.dropped).toBeGreaterThan(0)
      proxy.reset()
      const repeat = await persistently(() => add(guard(), leaseOf(counter, 2n), key, { counter, result: 'y' }))
      expect(repeat).toMatchObject({ ran: true, value: 'y', token: 2n })
      expect(await read(counter)).toBe(1)
      proxy.dropRequests(false)
      await close()
    })
  })
}

/** What a test can say of an outcome that may be either. */
function essence(outcome: unknown): object {
  const { ran, value, code, transient } = outcome as Record<string, unknown>
  return code === undefined ? { ran, value } : { code, transient }
}

/** What the work of a store in JavaScript must not return. */
export function resultSuite<G>(name: string, bench: () => OnceBench<G>): void {
  describe(`${name}, results of once`, () => {
    test('a result that JSON cannot express is refused by its path, and nothing is done', async () => {
      const { guard, add, read, has } = bench()
      const counter = freshResource()
      const ring: Record<string, unknown> = { list: [] }
      ring['list'] = [ring]
      const wrong: readonly (readonly [unknown, string])[] = [
        [7n, 'result: expected what JSON can express, got the bigint 7; convert it, to a string for example'],
        [{ rows: [{ id: 1, made: new Date(0) }] }, 'result.rows[0].made: expected what JSON can express, got a Date'],
        [{ a: undefined }, 'result.a: expected what JSON can express, got undefined; leave it out, or use null'],
        [Array.of(1).concat(Array(1)), 'result[1]: expected what JSON can express, got undefined'],
        [{ 'a b': () => 1 }, 'result["a b"]: expected what JSON can express, got a function'],
        [[NaN], 'result[0]: expected what JSON can express, got NaN'],
        [new Map(), 'result: expected what JSON can express, got a Map'],
        [Buffer.from('x'), 'result: expected what JSON can express, got a Buffer'],
        [Symbol('s'), 'result: expected what JSON can express, got a symbol'],
        [ring, 'result.list[0]: expected what JSON can express, got an object within itself'],
      ]
      for (const [result, message] of wrong) {
        const key = freshKey()
        await expect(add(guard(), leaseOf(counter, 1n), key, { counter, result })).rejects.toThrow(message)
        expect(await has(key)).toBe(false)
      }
      expect(await read(counter)).toBe(0)
    })

    test('a result that is too long is refused with both sizes, and the longest is kept', async () => {
      const { guard, add, read } = bench()
      const counter = freshResource()
      const lease = leaseOf(counter, 1n)
      await expect(add(guard(), lease, freshKey(), { counter, result: 'é'.repeat(32_768) })).rejects.toThrow(
        'result: expected at most 65536 bytes of JSON, got 65538',
      )
      const [key, longest] = [freshKey(), 'é'.repeat(32_767)]
      await add(guard(), lease, key, { counter, result: longest })
      expect((await add(guard(), lease, key, { counter })).value).toBe(longest)
      expect(await read(counter)).toBe(1)
    })
  })
}

function run(job: string, owner: string, token: bigint): Pick<Run, 'job' | 'owner' | 'token' | 'engine'> {
  return { job, owner: `${job}/${owner}`, token, engine: 'redis:' }
}

/** What the history of runs must do on every store. */
export function runsSuite(name: string, store: (options?: GuardOptions) => RunStore): void {
  describe(`${name}, runs`, () => {
    test('the beginning and the end of a run are one run; the newest comes first', async () => {
      const job = freshResource()
      expect(await store().runs(job)).toEqual([])
      const before = Date.now()
      await store().recordRun({ ...run(job, 'a@one', 2n ** 60n + 1n), outcome: 'began', tookMs: 0 })
      const [begun] = await store().runs(job)
      expect(begun).toEqual({
        ...run(job, 'a@one', 2n ** 60n + 1n),
        outcome: 'began',
        tookMs: 0,
        at: expect.any(Number),
      })
      expect(Math.abs(begun!.at - before)).toBeLessThan(60_000)
      await store().recordRun({ ...run(job, 'a@one', 2n ** 60n + 1n), outcome: 'done', tookMs: 1234 })
      expect(await store().runs(job)).toEqual([{ ...begun, outcome: 'done', tookMs: 1234 }])
      await store().recordRun({ ...run(job, 'b@two', 2n ** 60n + 2n), outcome: 'began', tookMs: 0 })
      const failed = { outcome: 'failed', tookMs: 5, message: 'é😀 it’s broken\nhere' } as const
      await store().recordRun({ ...run(job, 'b@two', 2n ** 60n + 2n), ...failed })
      expect(await store().runs(job)).toMatchObject([{ owner: `${job}/b@two`, ...failed }, { owner: `${job}/a@one` }])
      expect(await store().runs(job, { limit: 1 })).toMatchObject([{ owner: `${job}/b@two` }])
      expect(await store().runs(`${job} `)).toEqual([])
    })

    test('an end without a beginning is a run; a beginning that comes after the end changes nothing', async () => {
      const job = freshResource()
      const lost = { ...run(job, 'c@x', 3n), outcome: 'lost', tookMs: 60_000, message: 'stolen' } as const
      const before = Date.now()
      await store().recordRun(lost)
      const [recorded] = await store().runs(job)
      expect(Math.abs(recorded!.at - (before - 60_000))).toBeLessThan(30_000)
      await store().recordRun({ ...run(job, 'c@x', 3n), outcome: 'began', tookMs: 0 })
      expect(await store().runs(job)).toEqual([recorded])
      expect(recorded).toMatchObject(lost)
    })

    test('a long message is cut, and one that cannot be text is kept as far as it can', async () => {
      const job = freshResource()
      const message = `${'x'.repeat(499)}😀`
      await store().recordRun({ ...run(job, 'd@x', 1n), outcome: 'failed', tookMs: 1, message })
      await store().recordRun({ ...run(job, 'e@x', 2n), outcome: 'failed', tookMs: 0, message: 'a\0b' })
      expect((await store().runs(job)).map((one) => one.message)).toEqual(['a\uFFFDb', `${'x'.repeat(499)}\uFFFD`])
    })

    test('the last 1000 runs of a job are kept', { timeout: 120_000 }, async () => {
      const [job, other] = [freshResource(), freshResource()]
      const history = store()
      await history.recordRun({ ...run(other, 'x@x', 1n), outcome: 'done', tookMs: 0 })
      for (let n = 0; n < 1003; n++) {
        const outcome = n < 1000 ? 'began' : 'done'
        // The first is the oldest, whatever the resolution of the store's clock.
        await history.recordRun({ ...run(job, `${n}@x`, BigInt(n)), outcome, tookMs: 10_000_000 - n * 1000 })
      }
      const kept = await history.runs(job, { limit: 1000 })
      expect(kept.map(({ token }) => Number(token))).toEqual(Array.from({ length: 1000 }, (_, n) => 1002 - n))
      expect(await history.runs(other)).toHaveLength(1)
    })

    test('what is no job and no limit is refused by name', async () => {
      await expect(store().runs('')).rejects.toThrow('job: expected a name')
      await expect(store().runs('a', { limit: 0 })).rejects.toThrow(
        'limit: expected a whole number from 1 to 1000, got 0',
      )
      await expect(store().runs('a', { max: 1 } as never)).rejects.toThrow("got 'max'")
    })
  })
}
