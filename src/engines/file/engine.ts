import { instant, sleep, type MachineClock } from '../../clock.ts'
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
  QueuedGrant,
  Refusal,
  Release,
} from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import { systemRandom } from '../../random.ts'
import { Displaced, openDatabase, type Database } from './database.ts'
import { explained, isBusy } from './failures.ts'
import { examine } from './doctor.ts'
import { Ledger, NotReserved, type Verdict } from './ledger.ts'
import { Line } from './line.ts'
import type { Machine } from './machine.ts'

export interface FileSettings {
  readonly path: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly clock: MachineClock
  /** How long a call may find the file busy. */
  readonly patienceMs: (ttlMs: number) => number
  readonly machine: () => Machine
  /** A lease ends with the process that holds it. */
  readonly endsWithProcess: boolean
}

interface About {
  readonly resources: readonly string[]
  readonly ttlMs: number
}

/** The file, once it is open. */
interface Opened {
  readonly database: Database
  readonly ledger: Ledger
  readonly line: Line
}

/** What a call works with when it is not about a lease of some ttl. */
const USUAL_TTL_MS = 10_000

export class FileEngine implements Engine {
  readonly name = 'file'
  readonly identity: string
  readonly guarantees: Guarantees
  readonly limits: EngineLimits
  readonly #settings: FileSettings
  readonly #clock: MachineClock
  #opened: Opened | undefined
  #opening: Promise<void> | undefined
  #closed = false

  constructor(settings: FileSettings) {
    this.identity = `file:${settings.path}`
    this.guarantees = settings.guarantees
    this.limits = settings.limits
    this.#settings = settings
    this.#clock = settings.clock
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const verdict = await this.#grant(request, (ledger) => ledger.acquire(request))
    return verdict.kind === 'granted' ? granted(verdict) : refusal(verdict)
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    try {
      for (;;) {
        signal.throwIfAborted()
        const since = instant(this.#clock)
        const verdict = await this.#grant(request, (ledger) => ledger.takeTurn(request))
        if (verdict.kind === 'granted') return { ...granted(verdict), since }
        await this.#opened?.line.wait(verdict.by, signal)
      }
    } catch (error) {
      // A ticket that stays behind is found out and dropped by those who come after it.
      await this.#write(request, 'anywhere', ({ ledger }) => ledger.giveUpTicket(request.owner)).catch(() => undefined)
      throw error
    }
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return this.#extend(leases, (ledger, lease) => ledger.extend(lease))
  }

  async leave(lease: LeaseRef): Promise<Extension> {
    const [answer] = await this.#extend([lease], (ledger) => ledger.leave(lease))
    return answer!
  }

  async release(lease: LeaseRef): Promise<Release> {
    const ours = await this.#write(lease, 'anywhere', ({ ledger }) => ledger.release(lease))
    // Who is next is decided by the queue: nobody here needs to let others go first.
    return { ours, awaited: 0 }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const about = { resources: resource === undefined ? [] : [resource], ttlMs: USUAL_TTL_MS }
    yield* await this.#retried(about, 'here', false, (opened) => opened?.ledger.held(resource) ?? [])
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    const { path, machine, clock } = this.#settings
    const about = { resources: [], ttlMs }
    return examine({
      path,
      ttlMs,
      clock,
      machine,
      open: () => this.#write(about, 'here', ({ database }) => database),
      writeToDisk: () =>
        this.#retried(about, 'here', true, ({ database, ledger }) => database.durably(() => ledger.touch())),
    })
  }

  async init(): Promise<readonly string[]> {
    const { path } = this.#settings
    const before = await this.#retried({ resources: [], ttlMs: USUAL_TTL_MS }, 'here', false, (opened) => opened)
    if (before !== undefined) return [`${path} is there already`]
    await this.#write({ resources: [], ttlMs: USUAL_TTL_MS }, 'here', () => undefined)
    return [`made ${path}, which this user alone can read and write`]
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#opening?.catch(() => undefined)
    this.#forget()
  }

  /** A grant that the others might not see is none, and nothing of it stays. */
  #grant(request: LeaseRequest, work: (ledger: Ledger) => Verdict): Promise<Verdict> {
    return this.#write(
      request,
      'here',
      ({ ledger }) => work(ledger),
      ({ ledger }) => ledger.release(request),
    )
  }

  async #extend(
    leases: readonly LeaseRef[],
    extend: (ledger: Ledger, lease: LeaseRef) => boolean,
  ): Promise<readonly Extension[]> {
    const ttlMs = Math.min(...leases.map((lease) => lease.ttlMs))
    try {
      return await this.#write({ resources: [], ttlMs }, 'here', ({ ledger }) =>
        leases.map((lease) => ({ kind: extend(ledger, lease) ? 'held' : 'lost' }) as const),
      )
    } catch (error) {
      // Others use another file by now and know nothing of our leases.
      if (error instanceof Displaced && error.place === 'replaced') return leases.map(() => ({ kind: 'lost' }))
      const cause = error instanceof Error ? error : new Error(String(error))
      return leases.map(() => ({ kind: 'unknown', cause }))
    }
  }

  /**
   * A transaction. Afterwards, unless it may be `anywhere`, we look whether the path still leads to our file: before, it
   * might be removed between the look and the commit, and the next process would make a new one and find nothing held.
   */
  #write<T>(about: About, where: Where, work: (opened: Opened) => T, undo?: (opened: Opened) => void): Promise<T> {
    return this.#retried(about, where, true, (opened) => {
      const { database } = opened
      const result = this.#transaction(opened, () => work(opened))
      if (where === 'anywhere') return result
      const place = database.place()
      if (place === 'here') return result
      if (undo !== undefined) database.transaction(() => undo(opened))
      throw new Displaced(database.path, place, about.resources)
    })
  }

  #transaction<T>({ database, ledger }: Opened, work: () => T): T {
    try {
      return database.transaction(work)
    } catch (error) {
      if (!(error instanceof NotReserved)) throw error
      database.durably(() => ledger.reserve())
      return database.transaction(work)
    }
  }

  /**
   * SQLite could wait for the file by itself, but this process would do nothing else meanwhile. So it is told not to, and
   * we come back after a short while, not all at the same time.
   */
  async #retried<T>(about: About, where: Where, create: true, work: (opened: Opened) => T): Promise<T>
  async #retried<T>(about: About, where: Where, create: false, work: (opened: Opened | undefined) => T): Promise<T>
  async #retried<T>(
    { resources, ttlMs }: About,
    where: Where,
    create: boolean,
    work: (opened: Opened) => T,
  ): Promise<T> {
    const untilMs = this.#clock.monotonicMs() + this.#settings.patienceMs(ttlMs)
    for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 20)) {
      try {
        if (this.#opened === undefined) await this.#open(create)
        else if (where === 'here') this.#assertInPlace(this.#opened, resources)
        if (this.#opened !== undefined || !create) return work(this.#opened!)
      } catch (error) {
        if (!isBusy(error) || this.#clock.monotonicMs() >= untilMs)
          throw explained(error, this.#settings.path, resources)
      }
      await sleep(this.#clock, pauseMs * (0.5 + 0.5 * systemRandom.fraction()))
    }
  }

  /**
   * If the file was removed or replaced, others may hold leases in the old one, and we are the ones who can still see them.
   * They can't be renewed any more, so the old file is left once they are over.
   */
  #assertInPlace({ database, ledger }: Opened, resources: readonly string[]): void {
    const place = database.place()
    if (place === 'here') return
    if (ledger.held().length > 0) throw new Displaced(database.path, place, resources)
    this.#forget()
  }

  async #open(create: boolean): Promise<void> {
    if (this.#closed) throw new EngineError('the file engine is closed', [], { transient: false })
    this.#opening ??= this.#openNow(create).finally(() => (this.#opening = undefined))
    await this.#opening
  }

  async #openNow(create: boolean): Promise<void> {
    const { path, clock, endsWithProcess } = this.#settings
    const machine = this.#settings.machine()
    const database = await openDatabase(path, { create })
    if (database === undefined) return
    const ledger = new Ledger(database, machine, clock, { endsWithProcess })
    const line = new Line({
      clock,
      logPath: database.logPath,
      isGone: (process) => machine.isGone(process),
      stands: (blocker) => {
        try {
          return ledger.stands(blocker)
        } catch {
          // It can't be told: the next try says why.
          return false
        }
      },
    })
    this.#opened = { database, ledger, line }
  }

  #forget(): void {
    const opened = this.#opened
    this.#opened = undefined
    opened?.line.close()
    opened?.database.close()
  }
}

type Where = 'here' | 'anywhere'

function granted({ token }: Extract<Verdict, { kind: 'granted' }>): Grant {
  return { kind: 'granted', token: BigInt(token) }
}

function refusal({ by }: Extract<Verdict, { kind: 'blocked' }>): Refusal {
  return {
    kind: 'refused',
    reason: 'held',
    ...(by.kind === 'lease' ? { holder: by.owner } : {}),
    ...(by.remainingMs === undefined ? {} : { remainingMs: by.remainingMs }),
  }
}
