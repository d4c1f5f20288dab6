import { AssertionError } from 'node:assert'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { conformance, type ConformanceCase, type OptionalMethod } from '../../src/conformance/index.ts'
import type { Extension, Grant, LeaseInfo, LeaseRef, LeaseRequest, Refusal } from '../../src/engine.ts'
import { newStore, SharingEngine, type Store } from './complete-engine.ts'

const METHODS: readonly OptionalMethod[] = [
  'handOver',
  'adopt',
  'leave',
  'enqueue',
  'observe',
  'onDoubt',
  'watch',
  'unanswered',
  'probe',
  'init',
]

type EngineClass = new (store: Store) => SharingEngine

function casesOf(EngineOf: EngineClass, some: { shared?: boolean; shortTtlMs?: number; patienceMs?: number } = {}) {
  const store = newStore()
  return conformance({
    engine: () => new EngineOf(store),
    methods: METHODS,
    shared: true,
    disconnect: (engine) => (engine as SharingEngine).prove.forEach((prove) => prove()),
    ...some,
  })
}

/** The cases that are there only for engines with shared leases. */
function sharedCases(): ConformanceCase[] {
  const others = new Set(casesOf(SharingEngine, { shared: false }).map(({ name }) => name))
  return casesOf(SharingEngine).filter(({ name }) => !others.has(name))
}

describe('an engine that has shared leases and a queue and is right', () => {
  for (const { name, run } of casesOf(SharingEngine)) test.concurrent(name, run)
})

class ReadersTakenForWriters extends SharingEngine {
  override acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return super.acquire({ ...request, shared: false })
  }
  override enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<SharingEngine['enqueue']> {
    return super.enqueue({ ...request, shared: false }, signal)
  }
}

/** What has one owner is every owner's. */
class OneEndForAll extends SharingEngine {
  override async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const answers = await super.extend(leases)
    for (const lease of leases) await extendAll(this, lease)
    return answers
  }
}

class FirstReaderDoesNotCount extends SharingEngine {
  override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const outcome = await super.acquire(request)
    return outcome.kind === 'granted' && request.shared === true ? { ...outcome, token: outcome.token - 1n } : outcome
  }
}

/** What is wrong with an engine, and the case that finds it. */
const BROKEN: readonly (readonly [wrong: string, found: string, EngineClass])[] = [
  ['takes a reader for a writer', 'two readers hold a resource at once, from two engines', ReadersTakenForWriters],
  [
    'lets a writer in beside readers',
    'a writer is refused while a reader holds, with a holder and a time after which to try again',
    class extends SharingEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        return outcome.kind === 'refused' ? super.acquire({ ...request, shared: true }) : outcome
      }
    },
  ],
  [
    'lets readers in beside a writer',
    'readers are refused while a writer holds, with the holder and the time left',
    class extends SharingEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        return request.shared === true ? { kind: 'granted', token: 1n } : outcome
      }
    },
  ],
  [
    'ends all readers with one of them',
    'the last release of a reader lets a writer in, and no earlier one does',
    class extends SharingEngine {
      override async release(lease: LeaseRef): ReturnType<SharingEngine['release']> {
        const released = await super.release(lease)
        for await (const { owner } of this.inspect(lease.resources[0])) await super.release({ ...lease, owner })
        return released
      }
    },
  ],
  [
    'has one end for all readers, and each that joins sets it',
    'a reader that nobody renews ends alone, whichever of the two came first, and is lost',
    class extends SharingEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        if (outcome.kind === 'granted') await extendAll(this, { ...request, token: outcome.token })
        return outcome
      }
    },
  ],
  [
    'has readers without an end',
    'when the last reader has ended by itself, a writer gets in',
    class extends SharingEngine {
      override acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        return super.acquire(request.shared === true ? { ...request, ttlMs: 1e9 } : request)
      }
    },
  ],
  ['extends all readers with one of them', 'an extension makes one reader last longer, and no other', OneEndForAll],
  ['shortens all readers with one of them', 'an extension that makes one reader shorter ends no other', OneEndForAll],
  [
    'answers extensions in another order',
    'readers and writers are extended at once, and the answers come in their order',
    class extends SharingEngine {
      override async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
        return (await super.extend(leases)).toSorted((one, other) => (one.kind < other.kind ? -1 : 1))
      }
    },
  ],
  [
    'takes a part of a reader for the whole',
    'a reader that was ended on one of its resources is lost, and the others stay',
    class extends SharingEngine {
      override extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
        return super.extend(leases.map((lease) => ({ ...lease, resources: lease.resources.slice(0, 1) })))
      }
    },
  ],
  [
    'releases a reader for anybody',
    'only its owner can extend or release a reader, and never one that is gone',
    class extends SharingEngine {
      override async release(lease: LeaseRef): ReturnType<SharingEngine['release']> {
        for await (const { owner } of this.inspect(lease.resources[0])) return super.release({ ...lease, owner })
        return super.release(lease)
      }
    },
  ],
  [
    'releases only the readers that it acquired itself',
    'every engine on the same servers can release one reader, for its owner, and the others stay',
    class extends SharingEngine {
      readonly #own = new Set<string>()
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        this.#own.add(request.owner)
        return super.acquire(request)
      }
      override async release(lease: LeaseRef): ReturnType<SharingEngine['release']> {
        return this.#own.has(lease.owner) ? super.release(lease) : { ours: false, awaited: 0 }
      }
    },
  ],
  [
    'releases the same reader again and again',
    'a shared acquire that is sent twice for one owner is granted twice, with no lower token, and is one lease',
    class extends SharingEngine {
      override async release(lease: LeaseRef): ReturnType<SharingEngine['release']> {
        return lease.shared === true ? { ours: true, awaited: 0 } : super.release(lease)
      }
    },
  ],
  [
    'gives a reader the token of the writer before it',
    'the token of a reader is greater than that of every writer before it, and less than that of every later one',
    FirstReaderDoesNotCount,
  ],
  [
    'gives a reader the token of a writer whose time is over',
    'the token of a reader is greater than that of a writer whose time is over',
    FirstReaderDoesNotCount,
  ],
  [
    'keeps a part of what it could not share all of',
    'several resources are shared all or none, next to exclusive leases on one of them',
    class extends SharingEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const { resources } = request
        const outcome = await super.acquire(request)
        if (outcome.kind === 'refused') await super.acquire({ ...request, resources: resources.slice(0, 1) })
        return outcome
      }
    },
  ],
  [
    'shows one reader of a resource',
    'inspect shows each reader of a resource, to other engines too, and says that it is shared',
    class extends SharingEngine {
      override async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
        const seen = new Set<string>()
        for await (const info of super.inspect(resource)) {
          if (!seen.has(info.resource)) yield info
          seen.add(info.resource)
        }
      }
    },
  ],
  [
    'lets readers overtake a writer that waits',
    'a writer that waits keeps later readers out, and gets in before them',
    class extends SharingEngine {
      override acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        return this.store.engine.acquire({ ...request, waits: false })
      }
    },
  ],
  [
    'keeps readers out for a writer that gave up',
    'when a writer that waits gives up, readers get in again beside those that hold',
    class extends SharingEngine {
      override async enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<SharingEngine['enqueue']> {
        return super.enqueue(request, signal).catch((error) => {
          this.store.queue.push({ request, since: systemClock.wallMs(), serve: () => undefined })
          throw error
        })
      }
    },
  ],
  [
    'keeps readers out for a writer that does not wait',
    'a writer that does not wait keeps nobody out',
    class extends SharingEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        if (outcome.kind === 'refused')
          this.store.queue.push({ request, since: systemClock.wallMs(), serve: () => undefined })
        return outcome
      }
    },
  ],
  [
    'grants every writer',
    'of 20 readers and 5 writers who race, no writer is ever beside anyone',
    class extends SharingEngine {
      override async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
        const outcome = await super.acquire(request)
        return request.shared === true ? outcome : { kind: 'granted', token: 1n }
      }
    },
  ],
  [
    'takes a reader in the queue for a writer',
    'a reader in the queue is granted beside other readers',
    ReadersTakenForWriters,
  ],
  [
    'grants readers in the queue one after another',
    'readers in the queue are all granted when the writer before them is done',
    ReadersTakenForWriters,
  ],
  [
    'lets a reader in the queue overtake a writer',
    'in the queue a writer waits for the readers before it, and a reader for the writer before it',
    class extends SharingEngine {
      override enqueue(request: LeaseRequest, signal: AbortSignal): ReturnType<SharingEngine['enqueue']> {
        const granted = super.enqueue(request, signal)
        if (request.shared === true) this.store.queue.unshift(this.store.queue.pop()!)
        return granted
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

test('every case about shared leases has an engine that fails it', () => {
  const names = sharedCases().map(({ name }) => name)
  const withLocks = names.indexOf('work of several processes shares a resource, and no writer gets in meanwhile')
  const found = new Set(BROKEN.map(([, name]) => name))
  expect(names.slice(0, withLocks).filter((name) => !found.has(name))).toEqual([])
  expect(withLocks).toBe(found.size)
})

test('an engine without shared leases has one case about them: its locks refuse to share', () => {
  const ours = new Set(casesOf(SharingEngine).map(({ name }) => name))
  const only = casesOf(SharingEngine, { shared: false }).filter(({ name }) => !ours.has(name))
  expect(only.map(({ name }) => name)).toEqual(['locks on an engine without shared leases refuse to share, and say so'])
})

/** Gives every holder of the lease's resources its ttl. */
async function extendAll(engine: SharingEngine, lease: LeaseRef): Promise<void> {
  for await (const { owner } of engine.inspect(lease.resources[0])) {
    await engine.store.engine.extend([{ ...lease, owner }])
  }
}
