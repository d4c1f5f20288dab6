import { systemClock } from '../../src/clock.ts'
import type { LeaseInfo, LeaseRequest, QueuedGrant } from '../../src/engine.ts'
import { CompleteEngine, type Store } from './complete-engine.ts'

/** What is wrong with what a queue makes of the rest of a request, and the case that finds it. */
export const WRONG_QUEUES: readonly (readonly [
  wrong: string,
  found: string,
  EngineOf: new (store: Store) => CompleteEngine,
])[] = [
  [
    'grants the place to a new owner, and does not say so',
    'enqueue grants to the owner of its request, or names the one that newOwner made',
    class extends CompleteEngine {
      override enqueue(
        request: LeaseRequest,
        signal: AbortSignal,
        newOwner = () => request.owner,
      ): Promise<QueuedGrant> {
        return super.enqueue({ ...request, owner: newOwner() }, signal)
      }
    },
  ],
  [
    'gives an heir the place under the owner before it, and does not say so',
    'enqueue that is aborted with an heir leaves a place that the heir can take, under the owner that its grant names',
    class extends CompleteEngine {
      #kept: string | undefined
      override async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
        const owner = this.#kept ?? request.owner
        this.#kept = undefined
        return super.enqueue({ ...request, owner }, signal).catch((error: unknown) => {
          if (request.hasHeir?.() === true) this.#kept = owner
          throw error
        })
      }
    },
  ],
  [
    'keeps a place for an heir, for good',
    'enqueue that is aborted with an heir that never comes lets those behind it in',
    class extends CompleteEngine {
      override async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
        return super.enqueue(request, signal).catch((error: unknown) => {
          const place = { request, since: systemClock.wallMs(), serve: (): void => undefined }
          if (request.hasHeir?.() === true) this.store.queue.unshift(place)
          throw error
        })
      }
    },
  ],
  [
    'takes the time that a caller has waited for seconds',
    'enqueue for a caller that has waited already is granted, and shows no earlier wait than that',
    class extends CompleteEngine {
      override async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
        for await (const info of super.inspect(resource)) {
          const line = this.store.queue.map(({ request: { owner, waitedMs = 0 }, since }) => {
            return { owner, since: since - 1000 * waitedMs }
          })
          yield { ...info, ...(line.length > 0 && { line }) }
        }
      }
    },
  ],
  [
    'calls a refusal a failure',
    'enqueue reports no failure while the servers answer',
    class extends CompleteEngine {
      override async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
        request.failing?.(new Error('someone has it'))
        return super.enqueue(request, signal)
      }
    },
  ],
]
