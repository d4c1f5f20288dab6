import { sleep, type Clock, type Timer } from '../../clock.ts'
import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { Watch } from '../../engine.ts'
import { asError } from '../../errors.ts'
import { Watchers } from '../shared/watchers.ts'
import type { MongoChangeStream, MongoCollection } from './client.ts'
import { codeOf, isPermanent } from './errors.ts'
import { FREEING } from './statements.ts'
import { bounded } from './steps.ts'

/** How long the server holds a request for the next change. A stream is closed between two requests. */
const AWAIT_MS = 500
/** How much later than that the answer may come. A stream that is silent for longer is opened again. */
const LATE_MS = 2000
/** How long to wait for a stream to open or to close: after that, polling is as good. */
const OPEN_TIMEOUT_MS = 1000
/** Between two tries to open a stream that broke. Its watchers are called each time, so they poll at this interval. */
const RETRY_MS = 1000
/** How long the stream stays open after its last watcher left: under contention the next one comes at once. */
const LINGER_MS = 2000
/** Where a stream cannot be opened, how long no other try is made: the server may become a replica set meanwhile. */
const UNAVAILABLE_FOR_MS = 60_000

/** From the first watcher to the last, over as many streams as that takes. */
interface Listening {
  readonly stopped: AbortController
  /** Whether the current stream could be opened. */
  armed: Promise<boolean>
  over: Promise<void>
}

/** One change stream for all waiters of this process. It reports the resources that became free. */
export class ChangeStreamWakeups {
  readonly #collection: MongoCollection
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #watchers = new Watchers()
  #listening: Listening | undefined
  #lingering: Timer | undefined
  #unavailableUntilMs = -Infinity

  constructor(collection: MongoCollection, clock: Clock, deadlines: Deadlines) {
    this.#collection = collection
    this.#clock = clock
    this.#deadlines = deadlines
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    this.#lingering?.cancel()
    const remove = this.#watchers.add(resources, freed)
    const close = (): void => {
      remove()
      this.#linger()
    }
    return { armed: this.#armed(), close }
  }

  async close(): Promise<void> {
    this.#lingering?.cancel()
    this.#watchers.clear()
    await this.#stop()
  }

  #armed(): Promise<boolean> {
    if (this.#listening === undefined) {
      if (this.#clock.monotonicMs() < this.#unavailableUntilMs) return Promise.resolve(false)
      const never = Promise.resolve()
      this.#listening = { stopped: new AbortController(), armed: Promise.resolve(false), over: never }
      this.#listening.over = this.#listen(this.#listening)
    }
    return this.#listening.armed
  }

  #linger(): void {
    if (this.#watchers.size > 0 || this.#listening === undefined) return
    this.#lingering?.cancel()
    this.#lingering = this.#clock.timer(() => void this.#stop(), LINGER_MS, true)
  }

  async #stop(): Promise<void> {
    const listening = this.#listening
    this.#listening = undefined
    listening?.stopped.abort()
    await listening?.over
  }

  /** Never rejects. */
  async #listen(listening: Listening): Promise<void> {
    const { signal } = listening.stopped
    let isOpen!: (armed: boolean) => void
    for (let wasOpen = false; ;) {
      listening.armed = new Promise((resolve) => (isOpen = resolve))
      const failure = await this.#follow(signal, () => {
        isOpen(true)
        // The watchers of the stream before this one may have missed a release in between.
        if (wasOpen) this.#watchers.wakeAll()
        wasOpen = true
      })
      isOpen(false)
      if (signal.aborted) return
      // There is no replica set (40573), or no permission: the next try would fail in the same way.
      if (codeOf(failure) === 40_573 || isPermanent(failure))
        this.#unavailableUntilMs = this.#clock.monotonicMs() + UNAVAILABLE_FOR_MS
      if (!wasOpen) break
      listening.armed = Promise.resolve(false)
      this.#watchers.wakeAll()
      await sleep(this.#clock, RETRY_MS, signal)
      if (signal.aborted) return
    }
    // No watch has ever been armed, so no watcher relies on being called.
    if (this.#listening === listening) this.#listening = undefined
  }

  /** Reads one stream until it breaks or is no longer needed. Never rejects. */
  async #follow(signal: AbortSignal, opened: () => void): Promise<Error> {
    let stream: MongoChangeStream | undefined
    let overdue: Deadline | undefined
    let stop!: () => void
    const stopped = new Promise<never>((_, reject) => {
      stop = () => {
        overdue = this.#deadlines.start(OPEN_TIMEOUT_MS, () =>
          reject(new Error('the change stream is no longer needed')),
        )
      }
    })
    signal.addEventListener('abort', stop)
    try {
      stream = this.#collection.watch(FREEING, { maxAwaitTimeMS: AWAIT_MS, readConcern: { level: 'majority' } })
      await Promise.race([this.#read(stream, signal, opened), stopped])
      return new Error('the change stream has ended')
    } catch (error) {
      return asError(error)
    } finally {
      signal.removeEventListener('abort', stop)
      overdue?.cancel()
      // Its cursor may be on a server that is gone. A server ends idle cursors by itself.
      if (stream !== undefined)
        await bounded(this.#deadlines, OPEN_TIMEOUT_MS, () => stream!.close()).catch(() => undefined)
    }
  }

  async #read(stream: MongoChangeStream, signal: AbortSignal, opened: () => void): Promise<void> {
    // The first response of the server has a token to resume from: from then on, no change is missed. The driver reports it
    // by an event; the first `tryNext` would resolve only after the server has waited for a change.
    const isOpen = new Promise<void>((resolve) => void stream.once('resumeTokenChanged', resolve))
    let next = stream.tryNext()
    await bounded(this.#deadlines, OPEN_TIMEOUT_MS, () => Promise.race([isOpen, next]))
    opened()
    for (;;) {
      const change = await bounded(this.#deadlines, AWAIT_MS + LATE_MS, () => next)
      if (change !== null) this.#wake(change)
      // Not earlier: if a stream is closed during a request, and the response is just on its way, the cursor stays open on the
      // server.
      if (stream.closed || signal.aborted) return
      next = stream.tryNext()
    }
  }

  #wake(change: unknown): void {
    const { documentKey } = change as { documentKey?: { _id?: unknown } }
    // The collection itself was dropped or renamed.
    if (documentKey === undefined) return this.#watchers.wakeAll()
    this.#watchers.wake(String(documentKey._id))
  }
}
