import { AssertionError } from 'node:assert'
import { describe, expect, test } from 'vitest'
import { sleep, systemClock } from '../../src/clock.ts'
import { conformance, type ConformanceCase, type OptionalMethod } from '../../src/conformance/index.ts'
import type { Extension, Grant, LeaseInfo, LeaseRef, LeaseRequest, Refusal } from '../../src/engine.ts'
import { CompleteEngine, newStore, type Store } from './complete-engine.ts'
import { WRONG_QUEUES } from './wrong-queues.ts'

const METHODS: readonly OptionalMethod[] = [
  'handOver',
  'adopt',
  'leave',
  'enqueue',
  'onDoubt',
  'observe',
  'watch',
  'unanswered',
  'probe',
  'init',
]

type EngineClass = new (store: Store) => CompleteEngine

function casesOf(EngineOf: EngineClass, times: { shortTtlMs?: number; patienceMs?: number } = {}): ConformanceCase[] {
  const store = newStore()
  return conformance({
    engine: () => new EngineOf(store),
    methods: METHODS,
    disconnect: (engine) => (engine as CompleteEngine).prove.forEach((prove) => prove()),
    ...times,
  })
}

describe('an engine that has every optional method and is right', () => {
  for (const { name, run } of casesOf(CompleteEngine)) test.concurrent(name, run)
})

/** What is wrong with an engine, and the case that finds it. */
const BROKEN: readonly (readonly [wrong: string, found: string, EngineClass])[] = [
  [
    'does not have a method that the setup names',
    'it has the optional methods that the setup names, and no others',
    class extends CompleteEngine {
      override init = undefined as never
    },
  ],
  [
    'has another identity in every process',
    'it says what it is: a name, one identity in all processes, what it promises, and its limits',
    class extends CompleteEngine {
      override readonly identity = `complete:${systemClock.monotonicMs()}`
    },
  ],
  [
    'has shared leases, and its setup does not say so',
    'its guarantees say whether it has shared leases, as the setup does',
    class extends CompleteEngine {
      override readonly guarantees = this.store.engine.guarantees
    },
  ],
  [
    'gives a number as a token',
    'a free resource is granted, with a token',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        return outcome.kind === 'granted' ? { ...outcome, token: Number(outcome.token) as never } : outcome
      }
    },
  ],
  [
    'does not say who holds a resource',
    'a held resource is refused to others, with the holder and the time left',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        return outcome.kind === 'refused' ? { kind: 'refused', reason: 'held' } : outcome
      }
    },
  ],
  [
    'refuses the owner who asks again',
    'an acquire that is sent twice for one owner is granted twice, with one token',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        for await (const { owner } of this.inspect(request.resources[0])) {
          if (owner === request.owner) return { kind: 'refused', reason: 'held', holder: owner }
        }
        return super.acquire(request)
      }
    },
  ],
  [
    'releases for anybody',
    'only its owner can release a lease, and only once',
    class extends CompleteEngine {
      override async release(lease: LeaseRef): ReturnType<CompleteEngine['release']> {
        for await (const { owner } of this.inspect(lease.resources[0])) return super.release({ ...lease, owner })
        return super.release(lease)
      }
    },
  ],
  [
    'releases only what it acquired itself',
    'every engine on the same servers can release a lease, for its owner',
    class extends CompleteEngine {
      readonly #own = new Set<string>()
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        this.#own.add(request.owner)
        return super.acquire(request)
      }
      override async release(lease: LeaseRef): ReturnType<CompleteEngine['release']> {
        return this.#own.has(lease.owner) ? super.release(lease) : { ours: false, awaited: 0 }
      }
    },
  ],
  [
    'adds `keepMs` to the ttl',
    'a lease with `keepMs` is refused to others, extended and released like any other',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        return super.acquire({ ...request, ttlMs: request.ttlMs + (request.keepMs ?? 0) })
      }
    },
  ],
  [
    'refuses everything while others are about',
    'an attempt in a later round, with others about, is granted what is free and refused what is held',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        return request.contended === true ? { kind: 'refused', reason: 'split' } : super.acquire(request)
      }
    },
  ],
  [
    'creates a lease that is gone when it is extended',
    'only its owner can extend a lease, and never one that is gone',
    class extends CompleteEngine {
      override async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
        for (const lease of leases) await super.acquire(lease)
        return super.extend(leases)
      }
    },
  ],
  [
    'answers extensions in another order',
    'many leases are extended at once, and the answers come in their order',
    class extends CompleteEngine {
      override async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
        return (await super.extend(leases)).toReversed()
      }
    },
  ],
  [
    'says that it has extended a lease, and does not',
    'an extension makes a lease last longer than it would have',
    class extends CompleteEngine {
      override async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
        return leases.map(() => ({ kind: 'held' }))
      }
    },
  ],
  [
    'lets a late owner extend',
    'a lease that nobody renews ends, and its late owner can neither extend nor release it',
    class extends CompleteEngine {
      override async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
        return leases.map(() => ({ kind: 'held' }))
      }
    },
  ],
  [
    'has tokens that begin again',
    'tokens grow strictly, over releases and over engines',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        return outcome.kind === 'granted' ? { ...outcome, token: 1n } : outcome
      }
    },
  ],
  [
    'keeps a part of what it could not get all of',
    'several resources are granted all or none, with one token above all that came before',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const { resources } = request
        const outcome = await super.acquire(request)
        if (outcome.kind === 'refused') await super.acquire({ ...request, resources: resources.slice(-1) })
        return outcome
      }
    },
  ],
  [
    'looks first and takes later',
    'of many who try at the same time, at most one is granted',
    class extends CompleteEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        for await (const { owner } of this.inspect(request.resources[0])) {
          if (owner !== request.owner) return { kind: 'refused', reason: 'held', holder: owner, remainingMs: 1 }
        }
        const outcome = await super.acquire(request)
        return outcome.kind === 'granted' ? outcome : { kind: 'granted', token: 1n }
      }
    },
  ],
  [
    'shows a lease that was released',
    'inspect shows a lease while it is held, alone and among all',
    class extends CompleteEngine {
      readonly #seen = new Map<string, LeaseInfo>()
      override async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
        for await (const info of super.inspect(resource)) this.#seen.set(info.resource, info)
        for (const info of this.#seen.values()) if (resource === undefined || info.resource === resource) yield info
      }
    },
  ],
  [
    'shows only the first resource of a lease',
    'inspect shows every resource of a lease, to other engines too',
    class extends CompleteEngine {
      override async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
        for await (const info of super.inspect(resource)) if (info.resource.endsWith(':0')) yield info
      }
    },
  ],
  [
    'takes a brace for a pattern',
    'names with spaces, braces, quotes and any script are names like others',
    class extends CompleteEngine {
      override async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
        for await (const info of super.inspect(resource)) if (!info.resource.includes('{{')) yield info
      }
    },
  ],
  [
    'has a finding that says nothing',
    'the doctor answers, each finding with a meaning',
    class extends CompleteEngine {
      override async check(): ReturnType<CompleteEngine['check']> {
        return [{ id: 'complete/silent', severity: 'ok', found: 'Something.', meaning: '' }]
      }
    },
  ],
  [
    'hands over with the old token',
    'handOver gives the lease a new owner and a higher token in one step',
    class extends CompleteEngine {
      override async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.handOver(lease, next)
        return outcome.kind === 'granted' ? { ...outcome, token: lease.token } : outcome
      }
    },
  ],
  [
    'hands over what is not the owner’s',
    'handOver refuses a lease that is gone, and one of another owner',
    class extends CompleteEngine {
      override async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        for await (const { owner } of this.inspect(lease.resources[0])) return super.handOver({ ...lease, owner }, next)
        return super.handOver(lease, next)
      }
    },
  ],
  [
    'hands over for the ttl that is left',
    'handOver passes on all resources of a lease, for the ttl of the next request',
    class extends CompleteEngine {
      override handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        return super.handOver(lease, { ...next, ttlMs: lease.ttlMs })
      }
    },
  ],
  [
    'hands over by a release and an acquire',
    'handOver lets nobody in between',
    class extends CompleteEngine {
      override async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        if (!(await super.release(lease)).ours) return { kind: 'refused', reason: 'held' }
        return super.acquire(next)
      }
    },
  ],
  [
    'looks whose lease it is, and hands it over later',
    'handOver to two at once is granted to at most one',
    class extends CompleteEngine {
      #before: Promise<unknown> = Promise.resolve()
      override async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        if ((await this.#ownerOf(lease)) !== lease.owner) return { kind: 'refused', reason: 'held' }
        const outcome = this.#before.then(async () =>
          super.handOver({ ...lease, owner: await this.#ownerOf(lease) }, next),
        )
        this.#before = outcome
        return outcome
      }
      async #ownerOf(lease: LeaseRef): Promise<string> {
        for await (const { owner } of this.inspect(lease.resources[0])) return owner
        return ''
      }
    },
  ],
  [
    'adopts with the old token',
    'adopt gives the lease a new owner and a higher token in one step, or leaves it both',
    class extends CompleteEngine {
      override async adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.handOver(lease, next)
        return outcome.kind === 'granted' ? { ...outcome, token: lease.token } : outcome
      }
    },
  ],
  [
    'adopts what is free',
    'adopt refuses a lease that is gone, and one of another owner',
    class extends CompleteEngine {
      override async adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.handOver(lease, next)
        return outcome.kind === 'granted' ? outcome : super.acquire(next)
      }
    },
  ],
  [
    'looks whose lease it is, and adopts it later',
    'adopt by two at once leaves one owner with one token',
    class extends CompleteEngine {
      override async adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
        if ((await this.extend([lease]))[0]?.kind !== 'held') return { kind: 'refused', reason: 'held' }
        await sleep(systemClock, 1)
        for await (const { owner } of this.inspect(lease.resources[0])) return super.handOver({ ...lease, owner }, next)
        return { kind: 'refused', reason: 'held' }
      }
    },
  ],
  [
    'leaves a lease by its release',
    'leave keeps others out for its ttl although the engine is closed, and not longer',
    class extends CompleteEngine {
      override async leave(lease: LeaseRef): Promise<Extension> {
        return { kind: (await super.release(lease)).ours ? 'held' : 'lost' }
      }
    },
  ],
  [
    'leaves a lease without a word to the servers',
    'leave keeps others out for its ttl although the engine is closed, and not longer',
    class extends CompleteEngine {
      override async leave(): Promise<Extension> {
        return { kind: 'held' }
      }
    },
  ],
  [
    'does not look whose lease it leaves',
    'leave says that a lease is lost which is gone or has another owner, and creates none',
    class extends CompleteEngine {
      override async leave(lease: LeaseRef): Promise<Extension> {
        await super.leave(lease)
        return { kind: 'held' }
      }
    },
  ],
  [
    'waits in the queue for somebody to come behind',
    'enqueue on a free resource is granted',
    class extends CompleteEngine {
      override async enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<CompleteEngine['enqueue']> {
        while (this.store.queue.length === 0 && !signal.aborted) await sleep(systemClock, 500)
        return super.enqueue(request, signal)
      }
    },
  ],
  [
    'grants a place as of the time when it was taken',
    'enqueue keeps its place for longer than its ttl, and the grant is proved after the wait',
    class extends CompleteEngine {
      override async enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<CompleteEngine['enqueue']> {
        const since = { monotonicMs: systemClock.monotonicMs(), wallMs: systemClock.wallMs() }
        return { ...(await super.enqueue(request, signal)), since }
      }
    },
  ],
  [
    'serves the last in the queue first',
    'enqueue grants in the order of arrival, over engines',
    class extends CompleteEngine {
      override enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<CompleteEngine['enqueue']> {
        const granted = super.enqueue(request, signal)
        this.store.queue.unshift(this.store.queue.pop()!)
        return granted
      }
    },
  ],
  [
    'shows the last in the queue first',
    'enqueue is seen by inspect: who waits, in which order and since when',
    class extends CompleteEngine {
      override async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
        for await (const info of super.inspect(resource)) {
          yield { ...info, ...(info.line !== undefined && { line: info.line.toReversed() }) }
        }
      }
    },
  ],
  [
    'keeps the place of a wait that was aborted',
    'enqueue rejects with the reason of its signal, and by then its place is given up',
    class extends CompleteEngine {
      override async enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<CompleteEngine['enqueue']> {
        const place = { request, since: systemClock.wallMs(), serve: (): void => undefined }
        try {
          return await super.enqueue(request, signal)
        } catch (error) {
          this.store.queue.unshift(place)
          throw error
        }
      }
    },
  ],
  [
    'rejects an aborted wait with an error of its own',
    'enqueue rejects with the reason of its signal, and by then its place is given up',
    class extends CompleteEngine {
      override async enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<CompleteEngine['enqueue']> {
        return super.enqueue(request, signal).catch(() => Promise.reject(new Error('aborted')))
      }
    },
  ],
  ...WRONG_QUEUES,
  [
    'never doubts',
    'onDoubt calls back when a connection is lost, and then a lease can be proved or is lost',
    class extends CompleteEngine {
      override onDoubt(): void {}
    },
  ],
  [
    'observes nothing',
    'observe reports the round trips of commands, to each server that is asked',
    class extends CompleteEngine {
      override observe(): void {}
    },
  ],
  [
    'shows a password to those who observe',
    'observe reports the round trips of commands, to each server that is asked',
    class extends CompleteEngine {
      override observe(tell: Parameters<CompleteEngine['observe']>[0]): void {
        super.observe((trip) => [trip, { ...trip, node: 'redis://default:secret@host:6379' }].forEach(tell))
      }
    },
  ],
  [
    'is armed and hears nothing',
    'watch notices a release of each of its resources once it is armed',
    class extends CompleteEngine {
      override watch(resources: readonly string[], freed: () => void): ReturnType<CompleteEngine['watch']> {
        return super.watch(resources.slice(1), freed)
      }
    },
  ],
  [
    'has one watch for all of its waiters',
    'watch goes on for others when one of them is closed',
    class extends CompleteEngine {
      readonly #calls = new Set<() => void>()
      override watch(resources: readonly string[], freed: () => void): ReturnType<CompleteEngine['watch']> {
        this.#calls.add(freed)
        const watch = super.watch(resources, () => this.#calls.forEach((call) => call()))
        return { ...watch, close: () => this.#calls.clear() }
      }
    },
  ],
  [
    'has a plain error for silent servers',
    'unanswered returns an EngineError about the resources',
    class extends CompleteEngine {
      override unanswered(): Error {
        return new Error('No server answered.')
      }
    },
  ],
  [
    'releases what it finds when it is probed',
    'probe says how each server answers, and changes nothing',
    class extends CompleteEngine {
      override async probe(): ReturnType<CompleteEngine['probe']> {
        for await (const { resource, ...info } of this.inspect()) {
          await super.release({ ...info, resources: [resource], ttlMs: 1 })
        }
        return super.probe()
      }
    },
  ],
  [
    'gives a probe without a round trip and without an error',
    'probe says how each server answers, and changes nothing',
    class extends CompleteEngine {
      override async probe(): ReturnType<CompleteEngine['probe']> {
        return [{ node: 'here', roundTripMs: undefined, clockOffsetMs: undefined }]
      }
    },
  ],
  [
    'rejects a probe that fails',
    'probe of a closed engine does not reject',
    class extends CompleteEngine {
      #closed = false
      override async probe(): ReturnType<CompleteEngine['probe']> {
        return this.#closed ? Promise.reject(new Error('closed')) : super.probe()
      }
      override async close(): Promise<void> {
        this.#closed = true
      }
    },
  ],
  [
    'begins anew with every init',
    'init says what it did, and when repeated keeps the leases and the counters',
    class extends CompleteEngine {
      override async init(): ReturnType<CompleteEngine['init']> {
        Object.assign(this.store, newStore())
        return ['Created everything.']
      }
    },
  ],
]

describe('an engine that', () => {
  test.concurrent.each(BROKEN)('%s fails: %s', async (_wrong, found, EngineOf) => {
    // Most of these engines let the case wait for something that never happens.
    const { run } = casesOf(EngineOf, { shortTtlMs: 50, patienceMs: 400 }).find(({ name }) => name === found)!
    await expect(run()).rejects.toThrow(AssertionError)
  })
})

test('every case about a method has an engine that fails it', () => {
  const names = casesOf(CompleteEngine).map(({ name }) => name)
  const found = new Set(BROKEN.map(([, name]) => name))
  const withLocks = names.indexOf('tryAcquire gives null when someone else has it')
  expect(names.slice(0, withLocks).filter((name) => !found.has(name))).toEqual([])
})

test('without the methods of an engine there are no cases for them, and one case that says which are missing', async () => {
  const store = newStore()
  const cases = conformance({ engine: () => new CompleteEngine(store) })
  expect(cases.filter(({ name }) => METHODS.some((method) => name.startsWith(`${method} `)))).toEqual([])
  await expect(cases[0]!.run()).rejects.toThrow(AssertionError)
})

test('onDoubt needs a setup that can break a connection', () => {
  const store = newStore()
  const setup = { engine: () => new CompleteEngine(store), methods: ['onDoubt'] as const }
  expect(() => conformance(setup)).toThrow('disconnect: expected a function')
})
