import { sleep, type Clock, type Timer } from '../../clock.ts'
import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { Watch } from '../../engine.ts'
import type { MongoChangeStream, MongoCollection } from './client.ts'
import { FREEING } from './documents.ts'
import { asError, codeOf, isPermanent, within } from './requests.ts'

/** How long the server keeps a question for news open; a stream is closed between two. */
const AWAIT_MS = 500
/** How much later than that its answer may come. A stream that is silent for longer is opened anew. */
const LATE_MS = 2000
/** A stream that takes longer to open or to close is not waited for: meanwhile, polling is as good. */
const PATIENCE_MS = 1000
/** Between two tries to open a stream that broke; its watchers are called each time, which amounts to polling. */
const RETRY_MS = 1000
/** The stream stays open for a while after its last watcher left: under contention the next one comes at once. */
const LINGER_MS = 2000
/** Where there can't be a stream, none is tried for so long: someone may make a replica set of the server. */
const HOPELESS_FOR_MS = 60_000

/** One time of listening, over as many streams as it takes, until nobody watches any more. */
interface Listening {
  readonly stopped: AbortController
  /** Whether the present stream could be opened. */
  armed: Promise<boolean>
  over: Promise<void>
}

/** One change stream for all who wait in this process; it tells of resources that became free. */
export class Wakeups {
  readonly #collection: MongoCollection
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #watchers = new Map<string, Set<() => void>>()
  #listening: Listening | undefined
  #lingering: Timer | undefined
  #hopelessUntilMs = -Infinity

  constructor(collection: MongoCollection, clock: Clock, deadlines: Deadlines) {
    this.#collection = collection
    this.#clock = clock
    this.#deadlines = deadlines
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    this.#lingering?.cancel()
    for (const resource of resources) {
      const watchers = this.#watchers.get(resource)
      if (watchers === undefined) this.#watchers.set(resource, new Set([freed]))
      else watchers.add(freed)
    }
    return { armed: this.#armed(), close: () => this.#leave(resources, freed) }
  }

  async close(): Promise<void> {
    this.#lingering?.cancel()
    this.#watchers.clear()
    await this.#stop()
  }

  #armed(): Promise<boolean> {
    if (this.#listening === undefined) {
      if (this.#clock.monotonicMs() < this.#hopelessUntilMs) return Promise.resolve(false)
      const never = Promise.resolve()
      this.#listening = { stopped: new AbortController(), armed: Promise.resolve(false), over: never }
      this.#listening.over = this.#listen(this.#listening)
    }
    return this.#listening.armed
  }

  #leave(resources: readonly string[], freed: () => void): void {
    for (const resource of resources) {
      const watchers = this.#watchers.get(resource)
      watchers?.delete(freed)
      if (watchers?.size === 0) this.#watchers.delete(resource)
    }
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
        // Those who trusted the stream before this one may have missed something in between.
        if (wasOpen) this.#callAll()
        wasOpen = true
      })
      isOpen(false)
      if (signal.aborted) return
      if (isHopeless(failure)) this.#hopelessUntilMs = this.#clock.monotonicMs() + HOPELESS_FOR_MS
      if (!wasOpen) break
      listening.armed = Promise.resolve(false)
      this.#callAll()
      await sleep(this.#clock, RETRY_MS, signal)
      if (signal.aborted) return
    }
    // Nobody has been told that he would be called, so nobody must be.
    if (this.#listening === listening) this.#listening = undefined
  }

  /** Follows one stream until it breaks or is no longer wanted. Never rejects. */
  async #follow(signal: AbortSignal, opened: () => void): Promise<Error> {
    let stream: MongoChangeStream | undefined
    let overdue: Deadline | undefined
    let stop!: () => void
    const stopped = new Promise<never>((_, reject) => {
      stop = () => {
        overdue = this.#deadlines.start(PATIENCE_MS, () => reject(new Error('nobody listens any more')))
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
      // Its cursor may be on a server that is gone; that server ends it by itself.
      await this.#close(stream).catch(() => undefined)
    }
  }

  async #read(stream: MongoChangeStream, signal: AbortSignal, opened: () => void): Promise<void> {
    // The first answer of the server carries a place to resume from: from then on, nothing is missed. An event tells of
    // it; the first `tryNext` would resolve only after the server has waited for news.
    const isOpen = new Promise<void>((resolve) => void stream.once('resumeTokenChanged', resolve))
    let next = stream.tryNext()
    await within(this.#deadlines, PATIENCE_MS, () => Promise.race([isOpen, next]))
    opened()
    for (;;) {
      const change = await within(this.#deadlines, AWAIT_MS + LATE_MS, () => next)
      if (change !== null) this.#tell(change)
      // Not before: to close a stream while a question is open leaves its cursor on the server, if the answer is just
      // being given.
      if (stream.closed || signal.aborted) return
      next = stream.tryNext()
    }
  }

  async #close(stream: MongoChangeStream | undefined): Promise<void> {
    if (stream !== undefined) await within(this.#deadlines, PATIENCE_MS, () => stream.close())
  }

  #tell(change: unknown): void {
    const { documentKey } = change as { documentKey?: { _id?: unknown } }
    // The collection itself was dropped or renamed.
    if (documentKey === undefined) return this.#callAll()
    this.#watchers.get(String(documentKey._id))?.forEach((freed) => freed())
  }

  #callAll(): void {
    const all = new Set([...this.#watchers.values()].flatMap((watchers) => [...watchers]))
    for (const freed of all) freed()
  }
}

/** No replica set (40573), or no permission: it will be the same next time. */
function isHopeless(failure: Error): boolean {
  return codeOf(failure) === 40_573 || isPermanent(failure)
}
