import assert from 'node:assert/strict'
import { sleep, systemClock } from './clock.ts'
import type { Engine, Grant, LeaseInfo, LeaseRef, LeaseRequest, Refusal } from './engine.ts'
import { createLocks, type Locks } from './locks.ts'
import { systemRandom } from './random.ts'

export interface ConformanceSetup {
  /** A new engine on the same servers at every call, as another process would have it. */
  engine(): Engine | Promise<Engine>
  /** The shortest ttl to wait for the end of; default 200 ms. */
  shortTtlMs?: number
}

export interface ConformanceCase {
  /** A claim about every engine. */
  readonly name: string
  readonly run: () => Promise<void>
}

/**
 * What every engine must do, as cases for any test runner:
 * `for (const { name, run } of conformance(setup)) test(name, run)`.
 */
export function conformance(setup: ConformanceSetup): ConformanceCase[] {
  const shortTtlMs = setup.shortTtlMs ?? 200
  return [...engineCases(shortTtlMs), ...locksCases()].map(({ name, run }) => ({
    name,
    run: async () => {
      const bench = new Bench(setup)
      try {
        await run(bench)
      } finally {
        await bench.close()
      }
    },
  }))
}

const LONG_TTL_MS = 30_000

interface Case {
  readonly name: string
  readonly run: (bench: Bench) => Promise<void>
}

function engineCases(shortTtlMs: number): Case[] {
  return [
    {
      name: 'a free resource is granted, with a token',
      async run(bench) {
        const engine = await bench.engine()
        const { token } = await bench.granted(engine, bench.request())
        assert.equal(typeof token, 'bigint')
        assert.ok(token > 0n, `expected a positive token, got ${token}`)
      },
    },
    {
      name: 'a held resource is refused to others, with the holder and the time left',
      async run(bench) {
        const [one, two] = [await bench.engine(), await bench.engine()]
        const first = bench.request()
        await bench.granted(one, first)
        const refusal = await bench.refused(two, { ...bench.request(), resources: first.resources })
        assert.equal(refusal.reason, 'held')
        assert.equal(refusal.holder, first.owner)
        const left = refusal.remainingMs ?? 0
        assert.ok(left > 0 && left <= LONG_TTL_MS, `expected up to ${LONG_TTL_MS} ms left, got ${left}`)
      },
    },
    {
      name: 'an acquire that is sent twice for one owner is granted twice, with one token',
      async run(bench) {
        const engine = await bench.engine()
        const request = bench.request()
        const first = await bench.granted(engine, request)
        const second = await bench.granted(engine, request)
        assert.equal(second.token, first.token)
      },
    },
    {
      name: 'only its owner can release a lease, and only once',
      async run(bench) {
        const engine = await bench.engine()
        const lease = await bench.lease(engine)
        assert.equal((await engine.release({ ...lease, owner: bench.owner() })).ours, false)
        await bench.refused(engine, { ...bench.request(), resources: lease.resources })
        assert.equal((await engine.release(lease)).ours, true)
        assert.equal((await engine.release(lease)).ours, false)
      },
    },
    {
      name: 'only its owner can extend a lease, and never one that is gone',
      async run(bench) {
        const engine = await bench.engine()
        const lease = await bench.lease(engine)
        assert.deepEqual(await engine.extend([lease]), [{ kind: 'held' }])
        assert.deepEqual(await engine.extend([{ ...lease, owner: bench.owner() }]), [{ kind: 'lost' }])
        await engine.release(lease)
        assert.deepEqual(await engine.extend([lease]), [{ kind: 'lost' }])
        await bench.granted(engine, { ...bench.request(), resources: lease.resources })
      },
    },
    {
      name: 'many leases are extended at once, and the answers come in their order',
      async run(bench) {
        const engine = await bench.engine()
        const leases: LeaseRef[] = []
        for (let i = 0; i < 12; i++) leases.push(await bench.lease(engine))
        const gone = leases.filter((_, index) => index % 3 === 1)
        for (const lease of gone) await engine.release(lease)
        const kinds = (await engine.extend(leases)).map(({ kind }) => kind)
        assert.deepEqual(
          kinds,
          leases.map((lease) => (gone.includes(lease) ? 'lost' : 'held')),
        )
      },
    },
    {
      name: 'an extension makes a lease last longer than it would have',
      async run(bench) {
        const engine = await bench.engine()
        const lease = await bench.lease(engine, { ttlMs: shortTtlMs })
        assert.deepEqual(await engine.extend([{ ...lease, ttlMs: LONG_TTL_MS }]), [{ kind: 'held' }])
        const refusal = await bench.refused(engine, { ...bench.request(), resources: lease.resources })
        assert.ok((refusal.remainingMs ?? 0) > shortTtlMs)
      },
    },
    {
      name: 'a lease that nobody renews ends, and its late owner can neither extend nor release it',
      async run(bench) {
        const engine = await bench.engine()
        const late = await bench.lease(engine, { ttlMs: shortTtlMs })
        const next = { ...bench.request(), resources: late.resources }
        const { token } = await bench.eventuallyGranted(engine, next)
        assert.ok(token > late.token, `expected more than ${late.token}, got ${token}`)
        assert.deepEqual(await engine.extend([late]), [{ kind: 'lost' }])
        assert.equal((await engine.release(late)).ours, false)
        assert.deepEqual(await engine.extend([{ ...next, token }]), [{ kind: 'held' }])
      },
    },
    {
      name: 'tokens grow strictly, over releases and over engines',
      async run(bench) {
        const engines = [await bench.engine(), await bench.engine()]
        const resources = bench.request().resources
        let last = 0n
        for (let i = 0; i < 20; i++) {
          const lease = await bench.lease(engines[i % 2]!, { resources })
          assert.ok(lease.token > last, `expected more than ${last}, got ${lease.token}`)
          last = lease.token
          await engines[i % 2]!.release(lease)
        }
      },
    },
    {
      name: 'several resources are granted all or none, with one token above all that came before',
      async run(bench) {
        const engine = await bench.engine()
        const [a, b, c] = bench.names(3)
        const blocker = await bench.lease(engine, { resources: [b!] })
        await bench.refused(engine, { ...bench.request(), resources: [a!, b!, c!] })
        const alone = await bench.lease(engine, { resources: [c!] })
        await engine.release(alone)
        await engine.release(blocker)
        const all = await bench.lease(engine, { resources: [a!, b!, c!] })
        assert.ok(all.token > alone.token && all.token > blocker.token)
        for (const resource of [a!, b!, c!]) await bench.refused(engine, { ...bench.request(), resources: [resource] })
        assert.equal((await engine.release(all)).ours, true)
        const after = await bench.lease(engine, { resources: [a!] })
        assert.ok(after.token > all.token)
      },
    },
    {
      name: 'of many who try at the same time, at most one is granted',
      async run(bench) {
        const engines = [await bench.engine(), await bench.engine()]
        const resources = bench.request().resources
        const requests = Array.from({ length: 20 }, () => ({ ...bench.request(), resources }))
        const outcomes = await Promise.all(requests.map((request, index) => engines[index % 2]!.acquire(request)))
        const granted = outcomes.filter(({ kind }) => kind === 'granted')
        for (const request of requests) bench.keep(engines[0]!, { ...request, token: 0n })
        assert.ok(granted.length <= 1, `${granted.length} were granted`)
      },
    },
    {
      name: 'a hand-over gives the lease a new owner and a higher token in one step',
      async run(bench) {
        const engine = await bench.engine()
        const lease = await bench.lease(engine)
        const next = { ...bench.request(), resources: lease.resources }
        const handOver = engine.handOver?.bind(engine) ?? releaseAndAcquire(engine)
        const outcome = await handOver(lease, next)
        assert.equal(outcome.kind, 'granted')
        const { token } = outcome
        bench.keep(engine, { ...next, token })
        assert.ok(token > lease.token)
        assert.deepEqual(await engine.extend([lease]), [{ kind: 'lost' }])
        assert.deepEqual(await engine.extend([{ ...next, token }]), [{ kind: 'held' }])
      },
    },
    {
      name: 'a lease that is gone can not be handed over',
      async run(bench) {
        const engine = await bench.engine()
        const lease = await bench.lease(engine)
        await engine.release(lease)
        const other = await bench.lease(engine, { resources: lease.resources })
        const next = { ...bench.request(), resources: lease.resources }
        const outcome = await (engine.handOver?.bind(engine) ?? releaseAndAcquire(engine))(lease, next)
        assert.equal(outcome.kind, 'refused')
        assert.deepEqual(await engine.extend([other]), [{ kind: 'held' }])
      },
    },
    {
      name: 'an armed watch notices a release',
      async run(bench) {
        const [one, two] = [await bench.engine(), await bench.engine()]
        const lease = await bench.lease(one)
        let freed = 0
        const watch = two.watch?.(lease.resources, () => freed++) ?? { armed: Promise.resolve(false), close() {} }
        const armed = await watch.armed
        await one.release(lease)
        // An engine that can't promise wake-ups says so, and the core polls.
        await eventually('the watch to notice the release', () => !armed || freed > 0)
        watch.close()
      },
    },
    {
      name: 'inspect shows a lease while it is held, alone and among all',
      async run(bench) {
        const engine = await bench.engine()
        const lease = await bench.lease(engine)
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
    },
    {
      name: 'names with spaces, braces, quotes and any script are names like others',
      async run(bench) {
        const engine = await bench.engine()
        const odd = [' x ', '{a}b', 'a}b', '{}', '}{', '{{x}}', `it's "q"`, 'Ω/日本/🚀', '../..', '%00', '*', 'a:b\\c']
        for (const name of odd) {
          const resources = [`${bench.request().resources[0]}${name}`]
          const lease = await bench.lease(engine, { resources })
          await bench.refused(engine, { ...bench.request(), resources })
          assert.deepEqual(
            (await collect(engine.inspect(resources[0]))).map(({ owner }) => owner),
            [lease.owner],
          )
          assert.equal((await engine.release(lease)).ours, true)
        }
      },
    },
    {
      name: 'the doctor answers, each finding with a meaning',
      async run(bench) {
        const engine = await bench.engine()
        const findings = await engine.check(LONG_TTL_MS)
        assert.ok(findings.length > 0)
        for (const { id, found, meaning } of findings) assert.ok(id !== '' && found !== '' && meaning !== '')
      },
    },
  ]
}

function locksCases(): Case[] {
  return [
    {
      name: 'tryAcquire gives null when someone else has it',
      async run(bench) {
        const [one, two] = [await bench.locks(), await bench.locks()]
        const [name] = bench.names(1)
        await using lease = await one.tryAcquire(name!)
        assert.ok(lease?.held)
        assert.equal(await two.tryAcquire(name!), null)
      },
    },
    {
      name: 'a waiter gets the resource after its release, with a higher token',
      async run(bench) {
        const [one, two] = [await bench.locks(), await bench.locks()]
        const [name] = bench.names(1)
        const first = await one.acquire(name!)
        const waiting = two.acquire(name!, { wait: '20s' })
        assert.equal(await first.release(), true)
        await using second = await waiting
        assert.ok(second.token > first.token)
        assert.equal(first.held, false)
        assert.equal(second.held, true)
      },
    },
    {
      name: 'an aborted wait rejects with its reason and leaves nothing behind',
      async run(bench) {
        const [one, two] = [await bench.locks(), await bench.locks()]
        const [name] = bench.names(1)
        const first = await one.acquire(name!)
        const controller = new AbortController()
        const waiting = two.acquire(name!, { wait: '20s', signal: controller.signal })
        const reason = new Error('changed my mind')
        controller.abort(reason)
        await assert.rejects(waiting, reason)
        await first.release()
        // An attempt that was under way when the wait was aborted is undone behind the caller's back.
        await eventually(
          'the resource to be free',
          async () => (await (await one.tryAcquire(name!))?.release()) === true,
        )
      },
    },
    {
      name: 'critical sections of many waiters never overlap, and their tokens grow',
      async run(bench) {
        const [one, two] = [await bench.locks(), await bench.locks()]
        const [name] = bench.names(1)
        const tokens: bigint[] = []
        let inside = 0
        let most = 0
        const section = async (locks: Locks): Promise<void> => {
          await locks.using(name!, { wait: '50s' }, async (lease) => {
            inside++
            most = Math.max(most, inside)
            tokens.push(lease.token)
            await sleep(systemClock, 1)
            inside--
          })
        }
        await Promise.all(Array.from({ length: 30 }, (_, index) => section(index % 2 === 0 ? one : two)))
        assert.equal(most, 1)
        assert.equal(tokens.length, 30)
        for (const [index, token] of tokens.entries()) assert.ok(index === 0 || token > tokens[index - 1]!)
      },
    },
    {
      name: 'a lease is renewed while it is held',
      async run(bench) {
        const locks = await bench.locks()
        const [name] = bench.names(1)
        await using lease = await locks.acquire(name!, { ttl: bench.shortTtlMs * 3 })
        const until = systemClock.monotonicMs() + bench.shortTtlMs * 5
        await eventually('the first ttl to be over', () => systemClock.monotonicMs() > until)
        assert.equal(lease.held, true)
        assert.equal(lease.signal.aborted, false)
      },
    },
    {
      name: 'closing the locks releases their leases',
      async run(bench) {
        const [one, two] = [await bench.locks(), await bench.locks()]
        const [name] = bench.names(1)
        const lease = await one.acquire(name!)
        await one.close()
        assert.equal(lease.held, false)
        await using next = await two.tryAcquire(name!)
        assert.ok(next !== null)
      },
    },
  ]
}

/** What a hand-over amounts to on an engine that has none. */
function releaseAndAcquire(engine: Engine): NonNullable<Engine['handOver']> {
  return async (lease, next) => {
    await engine.release(lease)
    return engine.acquire(next)
  }
}

/** Makes what a case needs, and removes it afterwards. */
class Bench {
  readonly shortTtlMs: number
  readonly #setup: ConformanceSetup
  readonly #engines: Engine[] = []
  readonly #locks: Locks[] = []
  readonly #leases: [Engine, LeaseRef][] = []

  constructor(setup: ConformanceSetup) {
    this.#setup = setup
    this.shortTtlMs = setup.shortTtlMs ?? 200
  }

  async engine(): Promise<Engine> {
    const engine = await this.#setup.engine()
    this.#engines.push(engine)
    // The first attempt on new servers may end without a winner ('split'), and the core would just make another.
    for (let attempt = 0; attempt < 5; attempt++) {
      const request = this.request()
      const outcome = await engine.acquire(request)
      if (outcome.kind === 'refused') continue
      await engine.release({ ...request, token: outcome.token })
      return engine
    }
    assert.fail('a free resource was refused five times')
  }

  async locks(): Promise<Locks> {
    const locks = createLocks(await this.#setup.engine(), { ttl: LONG_TTL_MS })
    this.#locks.push(locks)
    return locks
  }

  owner(): string {
    return `${systemRandom.id()}@conformance`
  }

  /** Names that no other run uses, in one hash slot. */
  names(count: number): string[] {
    const group = systemRandom.id().slice(0, 12)
    return Array.from({ length: count }, (_, index) => `{${group}}:${index}`)
  }

  request(): LeaseRequest {
    return { resources: this.names(1), owner: this.owner(), ttlMs: LONG_TTL_MS, inOrder: false }
  }

  /** To be released in the end, if it is there. */
  keep(engine: Engine, lease: LeaseRef): void {
    this.#leases.push([engine, lease])
  }

  async granted(engine: Engine, request: LeaseRequest): Promise<Grant> {
    const outcome = await engine.acquire(request)
    assert.equal(outcome.kind, 'granted', `${request.resources.join(', ')}: ${JSON.stringify(outcome, plain)}`)
    this.#leases.push([engine, { ...request, token: outcome.token }])
    return outcome
  }

  async refused(engine: Engine, request: LeaseRequest): Promise<Refusal> {
    const outcome = await engine.acquire(request)
    assert.equal(outcome.kind, 'refused', request.resources.join(', '))
    return outcome
  }

  async eventuallyGranted(engine: Engine, request: LeaseRequest): Promise<Grant> {
    let outcome: Grant | Refusal | undefined
    await eventually('the lease before to end', async () => {
      outcome = await engine.acquire(request)
      return outcome.kind === 'granted'
    })
    this.#leases.push([engine, { ...request, token: (outcome as Grant).token }])
    return outcome as Grant
  }

  async lease(engine: Engine, some: Partial<LeaseRequest> = {}): Promise<LeaseRef> {
    const request = { ...this.request(), ...some }
    const { token } = await this.granted(engine, request)
    return { ...request, token }
  }

  async close(): Promise<void> {
    for (const [engine, lease] of this.#leases) await engine.release(lease)
    for (const locks of this.#locks) await locks.close()
    for (const engine of this.#engines) await engine.close()
  }
}

async function collect(infos: AsyncIterable<LeaseInfo>): Promise<LeaseInfo[]> {
  const all: LeaseInfo[] = []
  for await (const info of infos) all.push(info)
  return all
}

/** Asks until it is so, for 20 s at most. */
async function eventually(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const until = systemClock.monotonicMs() + 20_000
  while (!(await isSo())) {
    if (systemClock.monotonicMs() > until) assert.fail(`waited 20 s for ${what}`)
    await sleep(systemClock, 5)
  }
}

function plain(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}
