import { sleep, type Clock } from '../../../clock.ts'
import { Deadlines } from '../../../deadlines.ts'
import type {
  Engine,
  EngineLimits,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  NodeState,
  Refusal,
  Release,
  Watch,
} from '../../../engine.ts'
import { EngineError, messageOf } from '../../../errors.ts'
import type { Random } from '../../../random.ts'
import { inRounds } from '../next-round.ts'
import { probed } from '../probe.ts'
import { Cleanup } from '../cleanup.ts'
import { engineErrorFrom } from '../errors.ts'
import { inTime, NoAnswerError } from '../in-time.ts'
import { blockerOf, nextToken, ownRows, refusal, type RowInTheWay } from './look.ts'
import type { FailureKind, LeasePage, LeaseSteps, TableLook, Take } from './steps.ts'

export interface LeaseEngineOptions {
  readonly name: string
  readonly identity: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly clock: Clock
  readonly random: Random
  readonly steps: LeaseSteps
  /** Create the table when a statement finds that it is not there. */
  readonly createTable: boolean
  /** How long a statement about a lease of this ttl may take. */
  readonly timeoutMs: (ttlMs: number) => number
  readonly check: (ttlMs: number) => Promise<readonly Finding[]>
  readonly wakeups?: LeaseWakeups
  /** Ends what the engine opened for itself. */
  readonly end?: () => Promise<void>
}

/** Those who wait here are woken after a release. */
export interface LeaseWakeups {
  watch(resources: readonly string[], freed: () => void): Watch
  /** Whether somebody here relies on a notification: then we may only be refused by a holder that will notify us. */
  isWatched?(resources: readonly string[]): boolean
}

/** A statement that lost a race runs at most this often; under a strict isolation level every rival's commit is one. */
const MOST_TRIES = 20
/** The longest pause after the first lost race, which keeps rivals from colliding again. It doubles every time. */
const PAUSE_MS = 1
const LONGEST_PAUSE_MS = 50
/** Statements that belong to no lease have as much time as if they belonged to one of this ttl. */
const NO_TTL_MS = 30_000
/** Of a table that is not there. */
const NO_PAGE: LeasePage = { leases: [], next: undefined }

/** The engine of `postgres/` and `mariadb/`: leases in a table. What is special about a database is in its `LeaseSteps`. */
export class LeaseEngine implements Engine {
  readonly name: string
  readonly identity: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly check: (ttlMs: number) => Promise<readonly Finding[]>
  readonly watch?: NonNullable<Engine['watch']>
  readonly leave?: NonNullable<Engine['leave']>
  readonly #options: LeaseEngineOptions
  readonly #steps: LeaseSteps
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #cleanup: Cleanup
  readonly #underWay = new Set<Promise<unknown>>()
  #closed = false

  constructor(options: LeaseEngineOptions) {
    this.name = options.name
    this.identity = options.identity
    this.guarantees = options.guarantees
    this.limits = options.limits
    this.check = options.check
    this.#options = options
    this.#steps = options.steps
    this.#clock = options.clock
    this.#deadlines = new Deadlines(options.clock)
    this.#cleanup = new Cleanup(options.clock)
    const { wakeups, steps } = options
    if (wakeups !== undefined) this.watch = (resources, freed) => this.#watch(wakeups, resources, freed)
    if (steps.leave !== undefined) this.leave = (lease) => this.#leave(lease)
  }

  acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return inRounds(this.#clock, request, () => this.#undoable(request, (again) => this.#acquire(request, again)))
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const shortestMs = Math.min(...leases.map(({ ttlMs }) => ttlMs))
    try {
      const nothing = leases.map(() => false)
      const held = await this.#run(() => this.#steps.extend(leases), this.#options.timeoutMs(shortestMs), nothing)
      return held.map((isHeld) => (isHeld ? { kind: 'held' } : { kind: 'lost' }))
    } catch (error) {
      return leases.map(({ resources }) => ({ kind: 'unknown', cause: this.#failure(error, resources) }))
    }
  }

  async release(lease: LeaseRef): Promise<Release> {
    try {
      return await this.#release(lease)
    } catch (error) {
      throw this.#failure(error, lease.resources)
    }
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    // When the answer is lost, nobody knows whose it is: the old owner wanted to release it, the next one goes on waiting.
    const undo = (): void => {
      for (const one of [next, lease]) this.#cleanup.later(() => this.#release(one), one.ttlMs)
    }
    const work = async (again: Again): Promise<Grant | Refusal> => {
      const token = await again(() => this.#steps.handOver(lease, next))
      return token === undefined ? this.#moveOwn(lease, next, again) : { kind: 'granted', token }
    }
    return this.#undoable(next, work, undo)
  }

  /** As `handOver`, but the old owner may go on: of an unknown outcome the lease is given back where it is the next owner's. */
  async adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const undo = (): void => this.#cleanup.later(() => this.#giveBack(lease, next), next.ttlMs)
    return this.#undoable(next, (again) => this.#moveOwn(lease, next, again), undo)
  }

  async probe(): Promise<readonly NodeState[]> {
    const nothing: TableLook = { clockUs: 0n, rows: [] }
    const look = async (): Promise<number | undefined> => {
      // A name that no resource has, since an empty list is no SQL: the answer has the server's time in any case.
      const { clockUs } = await this.#run(() => this.#steps.look(['']), this.#options.timeoutMs(NO_TTL_MS), nothing)
      return clockUs === 0n ? undefined : Number(clockUs) / 1000
    }
    return [await probed(this.name, this.#clock, look, (error) => this.#failure(error, []).message)]
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    for (let after: string | undefined = ''; after !== undefined;) {
      const from: string = after
      const query = (): Promise<LeasePage> => this.#steps.page(from, resource)
      const page = await this.#run(query, this.#options.timeoutMs(NO_TTL_MS), NO_PAGE).catch((error: unknown) => {
        throw this.#failure(error, resource === undefined ? [] : [resource])
      })
      yield* page.leases
      after = page.next
    }
  }

  async init(): Promise<readonly string[]> {
    try {
      const did = await inTime(this.#create(), this.#deadlines, this.#options.timeoutMs(NO_TTL_MS))
      if (did === 'neither') return ['the table is there']
      return [`${did} the table:\n${did === 'created' ? this.#steps.schema : this.#steps.change}`]
    } catch (error) {
      throw this.#failure(error, [])
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.allSettled([...this.#underWay, this.#cleanup.close()])
    await this.#options.end?.()
    this.#deadlines.close()
  }

  /**
   * Holders notify of a release only if they were asked to. They are asked here, and again with every refusal while somebody
   * watches: a release removes the request, and everybody who is notified makes an attempt.
   */
  #watch(wakeups: LeaseWakeups, resources: readonly string[], freed: () => void): Watch {
    const watch = wakeups.watch(resources, freed)
    if (this.#steps.noteAll === undefined) return watch
    const ask = (): Promise<boolean> => this.#steps.noteAll!(resources).then(() => true)
    const asked = watch.armed.then((isArmed) => isArmed && this.#run(ask, this.#options.timeoutMs(NO_TTL_MS), true))
    // The core polls, and its attempts say what is wrong.
    return { armed: asked.catch(() => false), close: () => watch.close() }
  }

  async #acquire(request: LeaseRequest, again: Again): Promise<Grant | Refusal> {
    const { resources, waits = false } = request
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const first =
        this.#steps.takeAtOnce === undefined ? undefined : await again(() => this.#steps.takeAtOnce!(request))
      if (first?.token !== undefined) return { kind: 'granted', token: first.token }
      const look = first?.look ?? (await again(() => this.#steps.look(resources)))
      const blocker = blockerOf(look, request)
      if (blocker !== undefined) {
        const wants = blocker.hasReaders && waits
        const isNoted = wants
          ? await again(() => this.#steps.want(resources))
          : await this.#isNoted(blocker, request, again)
        if (isNoted) return refusal(blocker, wants)
        // It was released between the look and the note, and nobody was notified.
        continue
      }
      const token = await this.#take(look, request, again)
      if (token !== undefined) return { kind: 'granted', token }
    }
    return { kind: 'refused', reason: 'split' }
  }

  /** Whether those who rely on a notification here will get one. */
  async #isNoted({ row }: RowInTheWay, { resources }: LeaseRequest, again: Again): Promise<boolean> {
    if (this.#options.wakeups?.isWatched?.(resources) !== true || row.isAwaited) return true
    return again(() => this.#steps.note!(row))
  }

  async #take(look: TableLook, request: LeaseRequest, again: Again): Promise<bigint | undefined> {
    const { resources, owner, ttlMs, shared = false } = request
    const own = ownRows(look, owner)
    if (own.length === resources.length) {
      const { token } = own[0]!
      const [isHeld] = await again(() => this.#steps.extend([{ resources, owner, ttlMs, token, shared }]))
      return isHeld === true ? token : undefined
    }
    const token = nextToken(look, request)
    const endedSessions = look.rows.flatMap(({ isEnded, session }) => (isEnded ? [session!] : []))
    const take = { resources, owner, ttlMs, shared, token, endedSessions }
    return (await again(() => this.#steps.take(take))) ? token : undefined
  }

  /** By the token that its rows have now: what was given back has a greater one than its owner knows. Where a part is missing, nothing is moved. */
  async #moveOwn(lease: LeaseRef, next: Take, again: Again): Promise<Grant | Refusal> {
    const { resources, owner } = lease
    const own = ownRows(await again(() => this.#steps.look(resources)), owner)
    const held = own.length === resources.length ? { ...lease, token: own[0]!.token } : undefined
    const token = held && (await again(() => this.#steps.handOver(held, next)))
    return token === undefined ? { kind: 'refused', reason: 'held' } : { kind: 'granted', token }
  }

  /** It must last without us: this process may end before its owner renews it. */
  async #giveBack(lease: LeaseRef, { owner }: LeaseRequest): Promise<void> {
    const back = { ...lease, keepMs: lease.ttlMs }
    const work = (): Promise<unknown> => this.#moveOwn({ ...lease, owner }, back, (statement) => statement())
    await this.#run(work, this.#options.timeoutMs(lease.ttlMs), undefined)
  }

  /** An attempt whose outcome may stay unknown: what it leaves behind is removed, also when it takes effect late. */
  async #undoable(
    request: Take,
    work: (again: Again) => Promise<Grant | Refusal>,
    undo = (): void => this.#cleanup.later(() => this.#release(request), request.ttlMs),
  ): Promise<Grant | Refusal> {
    let late = false
    let attempt: Promise<Grant | Refusal> | undefined
    try {
      return await this.#tracked(() => {
        attempt = this.#onTable(() => work((step) => this.#again(step, () => late)))
        return attempt
      }, this.#options.timeoutMs(request.ttlMs))
    } catch (error) {
      late = true
      if (error instanceof NoAnswerError) {
        // Now, in case only the answer is late; and again when the attempt has settled, in case the request was late.
        undo()
        attempt?.then(
          ({ kind }) => kind === 'granted' && undo(),
          (lateError: unknown) => this.#failureKind(lateError) === 'unknown' && undo(),
        )
      } else if (this.#failureKind(error) === 'unknown') undo()
      throw this.#failure(error, request.resources)
    }
  }

  async #leave(lease: LeaseRef): Promise<Extension> {
    try {
      const isHeld = await this.#run(() => this.#steps.leave!(lease), this.#options.timeoutMs(lease.ttlMs), false)
      return isHeld ? { kind: 'held' } : { kind: 'lost' }
    } catch (error) {
      return { kind: 'unknown', cause: this.#failure(error, lease.resources) }
    }
  }

  async #release(lease: Take): Promise<Release> {
    const query = (): ReturnType<LeaseSteps['release']> => this.#steps.release(lease)
    const { live, awaited } = await this.#run(query, this.#options.timeoutMs(lease.ttlMs), { live: 0, awaited: 0 })
    return { ours: live === lease.resources.length, awaited }
  }

  /** A statement about leases that exist, with one deadline for all its tries. Without a table it returns `nothing`. */
  async #run<T>(statement: () => Promise<T>, timeoutMs: number, nothing: T): Promise<T> {
    let late = false
    const work = (): Promise<T> => this.#again(statement, () => late)
    try {
      return await this.#tracked(work, timeoutMs)
    } catch (error) {
      late = true
      if (this.#failureKind(error) === 'no table') return nothing
      throw error
    }
  }

  /** Runs it again when it lost a race against another transaction. */
  async #again<T>(statement: () => Promise<T>, isLate: () => boolean): Promise<T> {
    for (let tries = 1; ; tries++) {
      if (isLate()) throw new NoAnswerError(0)
      try {
        return await statement()
      } catch (error) {
        if (this.#failureKind(error) !== 'again' || tries >= MOST_TRIES) throw error
        await sleep(this.#clock, this.#options.random.fraction() * Math.min(PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS))
      }
    }
  }

  /** The very first attempt finds no table. */
  async #onTable<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      if (!this.#options.createTable || this.#failureKind(error) !== 'no table') throw error
      await this.#create()
      return work()
    }
  }

  async #create(): ReturnType<LeaseSteps['create']> {
    try {
      return await this.#steps.create()
    } catch (error) {
      throw new EngineError(
        `${this.name}: ${messageOf(error)}; the table can be created by hand:\n${this.#steps.schema}`,
        [],
        {
          cause: error,
          transient: this.#failureKind(error) !== 'never',
        },
      )
    }
  }

  /** With a deadline; `close` waits for it. */
  #tracked<T>(work: () => Promise<T>, timeoutMs: number): Promise<T> {
    const bounded = inTime(work(), this.#deadlines, timeoutMs)
    this.#underWay.add(bounded)
    return bounded.finally(() => this.#underWay.delete(bounded))
  }

  #failureKind(error: unknown): FailureKind {
    // One of ours: the table could not be created, so no statement ran on it.
    if (error instanceof EngineError) return error.transient ? 'undone' : 'never'
    return error instanceof NoAnswerError ? 'unknown' : this.#steps.failureKind(error)
  }

  #failure(error: unknown, resources: readonly string[]): EngineError {
    const kind = this.#failureKind(error)
    const isPermanent = kind === 'never' || kind === 'no table' || kind === 'other table' || this.#closed
    const remedy = this.#remedy(kind)
    return engineErrorFrom(error, this.name, resources, { isPermanent, message: `${messageOf(error)}${remedy}` })
  }

  #remedy(kind: FailureKind): string {
    const { schema, change } = this.#steps
    if (kind === 'no table') return `; create it with \`ringfence init\`, with engine.init() or with:\n${schema}`
    if (kind !== 'other table') return ''
    return `; if it is a lease table of an earlier version, change it with \`ringfence init\`, with engine.init() or with:\n${change}`
  }
}

type Again = <T>(statement: () => Promise<T>) => Promise<T>
