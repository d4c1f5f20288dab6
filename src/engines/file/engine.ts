import { instant, sleep, type MachineClock, type Timer } from '../../clock.ts'
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
import { NotReserved } from './counter.ts'
import { Displaced, openDatabase, type Database } from './database.ts'
import { explained, isBusy } from './failures.ts'
import { examine } from './doctor.ts'
import { Ledger, type Verdict } from './ledger.ts'
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

interface Terms {
  /** `here`: only where others look too. `anywhere`: also in a file that was removed. */
  readonly where: 'here' | 'anywhere'
  /** Make the file where there is none; otherwise nothing is done, and the answer is undefined. */
  readonly create: boolean
}

const MAKE: Terms = { where: 'here', create: true }

/** What a call works with when it is not about a lease of some ttl. */
const USUAL_TTL_MS = 10_000

/** Soon enough for those who wait behind; the file is not kept busier by it. */
const GIVE_UP_AGAIN_MS = 50

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
  /** Who waits no longer, as long as their tickets may still be there. */
  readonly #givenUp = new Set<string>()
  #givingUp: Timer | undefined

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
    const beganMs = this.#clock.monotonicMs()
    try {
      for (;;) {
        signal.throwIfAborted()
        const since = instant(this.#clock)
        const verdict = await this.#grant(request, (ledger) => ledger.takeTurn(request))
        if (verdict.kind === 'granted') return { ...granted(verdict), since }
        await this.#opened?.line.wait(verdict.by, beganMs, signal)
      }
    } catch (error) {
      this.#givenUp.add(request.owner)
      await this.#giveUp(request.ttlMs)
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
    const terms: Terms = { where: 'anywhere', create: false }
    const ours = (await this.#write(lease, terms, ({ ledger }) => ledger.release(lease))) ?? false
    // Who is next is decided by the queue: nobody here needs to let others go first.
    return { ours, awaited: 0 }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const about = { resources: resource === undefined ? [] : [resource], ttlMs: USUAL_TTL_MS }
    const terms: Terms = { where: 'here', create: false }
    yield* (await this.#retried(about, terms, ({ ledger }) => ledger.held(resource))) ?? []
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    const { path, machine, clock } = this.#settings
    const about = { resources: [], ttlMs }
    return examine({
      path,
      ttlMs,
      clock,
      machine,
      open: async () => (await this.#write(about, MAKE, ({ database }) => database))!,
      writeToDisk: () => this.#retried(about, MAKE, ({ database, ledger }) => database.durably(() => ledger.reserve())),
    })
  }

  async init(): Promise<readonly string[]> {
    const { path } = this.#settings
    const about = { resources: [], ttlMs: USUAL_TTL_MS }
    const found = await this.#retried(about, { where: 'here', create: false }, () => true)
    if (found === true) return [`${path} is there already`]
    await this.#write(about, MAKE, () => undefined)
    return [`made ${path}, which this user alone can read and write`]
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#givingUp?.cancel()
    await this.#opening?.catch(() => undefined)
    if (this.#givenUp.size > 0) await this.#giveUp(USUAL_TTL_MS)
    this.#forget()
  }

  /**
   * Takes the tickets of those who wait no longer out of the line. While the file is busy that can't be done, and a ticket
   * that stays behind would cost everyone after it the time of a turn: it is tried again until it is done.
   */
  async #giveUp(ttlMs: number): Promise<void> {
    const owners = [...this.#givenUp]
    const terms: Terms = { where: 'anywhere', create: false }
    try {
      await this.#write({ resources: [], ttlMs }, terms, ({ ledger }) =>
        owners.forEach((owner) => ledger.giveUpTicket(owner)),
      )
      for (const owner of owners) this.#givenUp.delete(owner)
    } catch {
      if (this.#closed) return
      // In the background: the tickets of a process that ends are no longer in anybody's way.
      this.#givingUp ??= this.#clock.timer(
        () => {
          this.#givingUp = undefined
          void this.#giveUp(USUAL_TTL_MS)
        },
        GIVE_UP_AGAIN_MS,
        true,
      )
    }
  }

  /** A grant that the others might not see is none, and nothing of it stays. */
  async #grant(request: LeaseRequest, work: (ledger: Ledger) => Verdict): Promise<Verdict> {
    const undo = ({ ledger }: Opened): unknown => ledger.release(request)
    return (await this.#write(request, MAKE, ({ ledger }) => work(ledger), undo))!
  }

  async #extend(
    leases: readonly LeaseRef[],
    extend: (ledger: Ledger, lease: LeaseRef) => boolean,
  ): Promise<readonly Extension[]> {
    const about = { resources: [], ttlMs: Math.min(...leases.map((lease) => lease.ttlMs)) }
    try {
      const held = await this.#write(about, { where: 'here', create: false }, ({ ledger }) =>
        leases.map((lease) => extend(ledger, lease)),
      )
      return leases.map((_, index) => ({ kind: held?.[index] === true ? 'held' : 'lost' }))
    } catch (error) {
      // Others use another file by now and know nothing of our leases.
      if (error instanceof Displaced && error.place === 'replaced') return leases.map(() => ({ kind: 'lost' }))
      const cause = error instanceof Error ? error : new Error(String(error))
      return leases.map(() => ({ kind: 'unknown', cause }))
    }
  }

  /**
   * A transaction. Afterwards, unless it may be `anywhere`, we look whether the path still leads to our file: if we looked
   * before, it might be removed between the look and the commit, and whoever makes a new one finds nothing held in it.
   */
  #write<T>(
    about: About,
    terms: Terms,
    work: (opened: Opened) => T,
    undo?: (opened: Opened) => unknown,
  ): Promise<T | undefined> {
    return this.#retried(about, terms, (opened) => {
      const { database } = opened
      const result = this.#transaction(opened, () => work(opened))
      const place = terms.where === 'anywhere' ? 'here' : database.place()
      if (place === 'here') return result
      if (undo !== undefined) database.transaction(() => undo(opened))
      throw new Displaced(database.path, place, about.resources)
    })
  }

  #transaction<T>({ database, ledger }: Opened, work: () => T): T {
    for (;;) {
      try {
        return database.transaction(work)
      } catch (error) {
        if (!(error instanceof NotReserved)) throw error
        database.durably(() => ledger.reserve())
      }
    }
  }

  /**
   * SQLite could wait for the file by itself, but this process would do nothing else meanwhile. So it is told not to, and
   * we come back after a short while, not all at the same time.
   */
  async #retried<T>(about: About, terms: Terms, work: (opened: Opened) => T): Promise<T | undefined> {
    const untilMs = this.#clock.monotonicMs() + this.#settings.patienceMs(about.ttlMs)
    for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 20)) {
      try {
        if (this.#opened !== undefined && terms.where === 'here') this.#leaveOldFile(this.#opened, about.resources)
        if (this.#opened === undefined) await this.#open(terms.create)
        if (this.#opened !== undefined) return work(this.#opened)
        if (!terms.create) return undefined
      } catch (error) {
        const isLate = this.#clock.monotonicMs() >= untilMs
        if (!isBusy(error) || isLate) throw explained(error, this.#settings.path, about.resources)
      }
      await sleep(this.#clock, pauseMs * (0.5 + 0.5 * systemRandom.fraction()))
    }
  }

  /**
   * If the file was removed or replaced, others may hold leases in the old one, and we are the ones who can still see them.
   * They can't be renewed any more, so the old file is left once they are over.
   */
  #leaveOldFile({ database, ledger }: Opened, resources: readonly string[]): void {
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
