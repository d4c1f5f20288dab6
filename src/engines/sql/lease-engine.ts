import { sleep, type Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
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
} from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import { systemRandom } from '../../random.ts'
import { PAGE, type LeaseRow, type LeaseTable, type Look, type Take, type Verdict } from './table.ts'
import { Undoing } from './undo.ts'

export interface LeaseEngineOptions {
  readonly name: string
  readonly identity: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly clock: Clock
  readonly table: LeaseTable
  /** Create the table when a statement finds that it is not there. */
  readonly createTable: boolean
  /** How long a statement may take; undefined: by the ttl. */
  readonly timeoutMs: number | undefined
  readonly check: (ttlMs: number) => Promise<readonly Finding[]>
  readonly wakeups?: LeaseWakeups
  /** Ends what the engine opened for itself. */
  readonly end?: () => Promise<void>
}

/** Where the database tells of releases. */
export interface LeaseWakeups {
  watch(resources: readonly string[], freed: () => void): Watch
  /** Whether someone here relies on being told: then a refusal must be one that the holder's release will follow up. */
  isWatched(resources: readonly string[]): boolean
}

/** Lost races are run again at once, so often; under a strict isolation level every rival's commit is one. */
const MOST_TRIES = 20
/** Rivals that collided part by up to this much, and more every time. */
const PAUSE_MS = 1
const LONGEST_PAUSE_MS = 50
/** For statements that belong to no lease: the time they have, as if they belonged to one of 30 s. */
const NO_TTL_MS = 30_000
/** A lease that ends with a session may end at any time, and nobody tells; waiters look this often. */
const LOOK_EVERY_MS = 500

/** Leases in a table of a database. What is special about a database is in its `LeaseTable`. */
export class LeaseEngine implements Engine {
  readonly name: string
  readonly identity: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly check: (ttlMs: number) => Promise<readonly Finding[]>
  readonly watch?: NonNullable<Engine['watch']>
  readonly leave?: NonNullable<Engine['leave']>
  readonly #options: LeaseEngineOptions
  readonly #table: LeaseTable
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #undoing: Undoing
  readonly #underWay = new Set<Promise<unknown>>()
  #closed = false

  constructor(options: LeaseEngineOptions) {
    this.name = options.name
    this.identity = options.identity
    this.guarantees = options.guarantees
    this.limits = options.limits
    this.check = options.check
    this.#options = options
    this.#table = options.table
    this.#clock = options.clock
    this.#deadlines = new Deadlines(options.clock)
    this.#undoing = new Undoing(options.clock)
    const { wakeups, table } = options
    if (wakeups !== undefined) this.watch = (resources, freed) => this.#watch(wakeups, resources, freed)
    if (table.leave !== undefined) this.leave = (lease) => this.#leave(lease)
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return this.#undoable(request, (again) => this.#acquire(request, again))
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const shortestMs = Math.min(...leases.map(({ ttlMs }) => ttlMs))
    try {
      const nothing = leases.map(() => false)
      const held = await this.#run(() => this.#table.extend(leases), this.#timeoutMs(shortestMs), nothing)
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
    const work = async (): Promise<Grant | Refusal> => {
      const token = await this.#table.handOver(lease, next)
      return token === undefined ? { kind: 'refused', reason: 'held' } : { kind: 'granted', token }
    }
    // Whose it is when the answer is lost, nobody knows: the old owner wanted to be rid of it, the next one goes on waiting.
    return this.#undoable(next, (again) => again(work), lease)
  }

  async probe(): Promise<readonly NodeState[]> {
    const node = this.name
    const sentWallMs = this.#clock.wallMs()
    const sentMs = this.#clock.monotonicMs()
    try {
      const nothing: Look = { clockUs: 0n, rows: [] }
      // Nobody's name, since a list of none is no SQL: the look tells the server's time in any case.
      const { clockUs } = await this.#run(() => this.#table.look(['']), this.#timeoutMs(NO_TTL_MS), nothing)
      const roundTripMs = this.#clock.monotonicMs() - sentMs
      const clockOffsetMs = clockUs === 0n ? undefined : Number(clockUs) / 1000 - (sentWallMs + roundTripMs / 2)
      return [{ node, roundTripMs, clockOffsetMs }]
    } catch (error) {
      const { message } = this.#failure(error, [])
      return [{ node, roundTripMs: undefined, clockOffsetMs: undefined, error: message }]
    }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    for (let after = ''; ;) {
      const query = (): Promise<readonly LeaseInfo[]> => this.#table.page(after, resource)
      const page = await this.#run(query, this.#timeoutMs(NO_TTL_MS), []).catch((error: unknown) => {
        throw this.#failure(error, resource === undefined ? [] : [resource])
      })
      yield* page
      if (page.length < PAGE) return
      after = page.at(-1)!.resource
    }
  }

  async init(): Promise<readonly string[]> {
    try {
      const created = await this.#inTime(this.#create(), this.#timeoutMs(NO_TTL_MS))
      return [created ? `created the table:\n${this.#table.schema}` : 'the table is there']
    } catch (error) {
      throw this.#failure(error, [])
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.allSettled([...this.#underWay, this.#undoing.close()])
    await this.#options.end?.()
    this.#deadlines.close()
  }

  /**
   * Holders tell of a release only if they were asked to. They are asked here, and again with every refusal while somebody
   * watches: a release takes the wish with it, and whoever hears of it makes an attempt.
   */
  #watch(wakeups: LeaseWakeups, resources: readonly string[], freed: () => void): Watch {
    const watch = wakeups.watch(resources, freed)
    const ask = (): Promise<boolean> => this.#table.noteAll!(resources).then(() => true)
    const asked = watch.armed.then((isArmed) => isArmed && this.#run(ask, this.#timeoutMs(NO_TTL_MS), true))
    // The core polls, and its attempts say what is wrong.
    return { armed: asked.catch(() => false), close: () => watch.close() }
  }

  async #acquire(request: LeaseRequest, again: Again): Promise<Grant | Refusal> {
    const { resources } = request
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      if (resources.length === 1 && this.#table.takeOne !== undefined) {
        const token = await again(() => this.#table.takeOne!(request))
        if (token !== undefined) return { kind: 'granted', token }
      }
      const look = await again(() => this.#table.look(resources))
      const blocker = blockerOf(look, request.owner)
      if (blocker !== undefined) {
        const isTold = this.#options.wakeups?.isWatched(resources) !== true || blocker.isAwaited
        if (isTold || (await again(() => this.#table.note!(blocker)))) return refusal(blocker)
        // It was released between the look and the note, and nobody was told.
        continue
      }
      const token = await this.#take(look, request, again)
      if (token !== undefined) return { kind: 'granted', token }
    }
    return { kind: 'refused', reason: 'split' }
  }

  async #take(look: Look, request: LeaseRequest, again: Again): Promise<bigint | undefined> {
    const { resources, owner, ttlMs } = request
    const own = look.rows.filter((row) => row.owner === owner && row.remainingMs > 0)
    if (own.length === resources.length) {
      const { token } = own[0]!
      const [isHeld] = await again(() => this.#table.extend([{ resources, owner, ttlMs, token }]))
      return isHeld === true ? token : undefined
    }
    const token = nextToken(look)
    const endedSessions = look.rows.flatMap(({ isEnded, session }) => (isEnded ? [session!] : []))
    return (await again(() => this.#table.take({ resources, owner, ttlMs, token, endedSessions }))) ? token : undefined
  }

  /** An attempt whose outcome may stay unknown: whatever it leaves behind is removed, also when it lands late. */
  async #undoable(
    request: Take,
    work: (again: Again) => Promise<Grant | Refusal>,
    before?: LeaseRef,
  ): Promise<Grant | Refusal> {
    const undo = (): void => {
      for (const { resources, owner, ttlMs } of before === undefined ? [request] : [request, before]) {
        this.#undoing.start(ttlMs, () => this.#release({ resources, owner, ttlMs }))
      }
    }
    let late = false
    let attempt: Promise<Grant | Refusal> | undefined
    try {
      return await this.#tracked(() => {
        attempt = this.#onTable(() => work((step) => this.#again(step, () => late)))
        return attempt
      }, this.#timeoutMs(request.ttlMs))
    } catch (error) {
      late = true
      if (error instanceof LateError) {
        // Now, if the answer alone is late; and again when the attempt has settled, in case that it was held up before.
        undo()
        attempt?.then(
          ({ kind }) => kind === 'granted' && undo(),
          (lateError: unknown) => this.#verdict(lateError) === 'unknown' && undo(),
        )
      } else if (this.#verdict(error) === 'unknown') undo()
      throw this.#failure(error, request.resources)
    }
  }

  async #leave(lease: LeaseRef): Promise<Extension> {
    try {
      const isHeld = await this.#run(() => this.#table.leave!(lease), this.#timeoutMs(lease.ttlMs), false)
      return isHeld ? { kind: 'held' } : { kind: 'lost' }
    } catch (error) {
      return { kind: 'unknown', cause: this.#failure(error, lease.resources) }
    }
  }

  async #release(lease: Pick<LeaseRef, 'resources' | 'owner' | 'ttlMs'>): Promise<Release> {
    const query = (): ReturnType<LeaseTable['release']> => this.#table.release(lease)
    const { live, awaited } = await this.#run(query, this.#timeoutMs(lease.ttlMs), { live: 0, awaited: 0 })
    return { ours: live === lease.resources.length, awaited }
  }

  /** A statement about leases that exist, with a deadline for all its tries: where there is no table, there is nothing. */
  async #run<T>(statement: () => Promise<T>, timeoutMs: number, nothing: T): Promise<T> {
    let late = false
    const work = (): Promise<T> => this.#again(statement, () => late)
    try {
      return await this.#tracked(work, timeoutMs)
    } catch (error) {
      late = true
      if (this.#verdict(error) === 'no table') return nothing
      throw error
    }
  }

  /** Runs it again when it lost a race against another transaction. */
  async #again<T>(statement: () => Promise<T>, isLate: () => boolean): Promise<T> {
    for (let tries = 1; ; tries++) {
      if (isLate()) throw new LateError(0)
      try {
        return await statement()
      } catch (error) {
        if (this.#verdict(error) !== 'again' || tries >= MOST_TRIES) throw error
        await sleep(this.#clock, systemRandom.fraction() * Math.min(PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS))
      }
    }
  }

  /** The first attempt of all finds no table. */
  async #onTable<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      if (!this.#options.createTable || this.#verdict(error) !== 'no table') throw error
      await this.#create()
      return work()
    }
  }

  async #create(): Promise<boolean> {
    try {
      return await this.#table.create()
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new EngineError(`${this.name}: ${why}; the table can be created by hand:\n${this.#table.schema}`, [], {
        cause: error,
        transient: this.#verdict(error) !== 'never',
      })
    }
  }

  /** With a deadline, and waited for by `close`. */
  #tracked<T>(work: () => Promise<T>, timeoutMs: number): Promise<T> {
    const bounded = this.#inTime(work(), timeoutMs)
    this.#underWay.add(bounded)
    return bounded.finally(() => this.#underWay.delete(bounded))
  }

  #inTime<T>(work: Promise<T>, timeoutMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      const deadline = this.#deadlines.start(timeoutMs, () => reject(new LateError(timeoutMs)))
      work.then(resolve, reject).finally(() => deadline.cancel())
    })
  }

  /** A tenth of the ttl, at least a second (a busy server, half of a shorter ttl), at most 5 s. */
  #timeoutMs(ttlMs: number): number {
    return this.#options.timeoutMs ?? Math.min(Math.max(ttlMs / 10, Math.min(1000, ttlMs / 2)), 5000)
  }

  #verdict(error: unknown): Verdict {
    // Of our own making: the table could not be created, and nothing was asked of it.
    if (error instanceof EngineError) return error.transient ? 'undone' : 'never'
    return error instanceof LateError ? 'unknown' : this.#table.verdict(error)
  }

  #failure(error: unknown, resources: readonly string[]): EngineError {
    if (error instanceof EngineError) return error
    const verdict = this.#verdict(error)
    const message = `${this.name}: ${error instanceof Error ? error.message : String(error)}`
    const remedy = verdict === 'no table' ? `; create it with engine.init() or with:\n${this.#table.schema}` : ''
    const transient = verdict !== 'never' && verdict !== 'no table' && !this.#closed
    return new EngineError(`${message}${remedy}`, resources, { cause: error, transient })
  }
}

type Again = <T>(statement: () => Promise<T>) => Promise<T>

class LateError extends Error {
  constructor(timeoutMs: number) {
    super(`no answer within ${Math.round(timeoutMs)} ms`)
  }
}

/** Of those in the way, the one that lasts longest. */
function blockerOf({ rows }: Look, owner: string): LeaseRow | undefined {
  let blocker: LeaseRow | undefined
  for (const row of rows) {
    if (row.owner === undefined || row.owner === owner || row.isEnded || row.remainingMs <= 0) continue
    if (blocker === undefined || row.remainingMs > blocker.remainingMs) blocker = row
  }
  return blocker
}

function refusal({ owner, remainingMs, session }: LeaseRow): Refusal {
  const leftMs = session === undefined ? remainingMs : Math.min(remainingMs, LOOK_EVERY_MS)
  return { kind: 'refused', reason: 'held', ...(owner === undefined ? {} : { holder: owner }), remainingMs: leftMs }
}

/**
 * Above all counters, and not below the clock: a failover to a replica that lacks the last grants, a restored backup or a
 * deleted row would otherwise give out a number for the second time.
 */
function nextToken({ clockUs, rows }: Look): bigint {
  let token = clockUs
  for (const row of rows) if (row.token >= token) token = row.token + 1n
  return token
}
