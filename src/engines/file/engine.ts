import { realpathSync } from 'node:fs'
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
import { openDatabase, type Database } from './database.ts'
import { explained, isBusy } from './failures.ts'
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
  #opening: Promise<Opened | undefined> | undefined
  #closed = false

  constructor(settings: FileSettings) {
    this.identity = `file:${settings.path}`
    this.guarantees = settings.guarantees
    this.limits = settings.limits
    this.#settings = settings
    this.#clock = settings.clock
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const verdict = await this.#write(request, ({ ledger }) => ledger.acquire(request))
    return verdict.kind === 'granted' ? granted(verdict) : refusal(verdict)
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    try {
      for (;;) {
        signal.throwIfAborted()
        const since = instant(this.#clock)
        let line: Line | undefined
        const verdict = await this.#write(request, (opened) => {
          line = opened.line
          return opened.ledger.takeTurn(request)
        })
        if (verdict.kind === 'granted') return { ...granted(verdict), since }
        await line?.wait(verdict.by, signal)
      }
    } catch (error) {
      // A ticket that stays behind is found out and dropped by those who come after it.
      await this.#write(request, ({ ledger }) => ledger.giveUpTicket(request.owner)).catch(() => undefined)
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
    const { ours } = await this.#write(lease, ({ ledger }) => ledger.release(lease))
    // Who is next is decided by the queue: nobody here needs to let others go first.
    return { ours, awaited: 0 }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const opened = await this.#open(false)
    if (opened === undefined) return
    yield* await this.#retried({ resources: [], ttlMs: USUAL_TTL_MS }, opened, () => opened.ledger.held(resource))
  }

  async check(_ttlMs: number): Promise<readonly Finding[]> {
    await this.#open(true)
    return [
      {
        id: 'file/open',
        severity: 'ok',
        found: `${this.#settings.path} can be opened`,
        meaning: 'leases can be kept in it',
      },
    ]
  }

  async close(): Promise<void> {
    this.#closed = true
    const opened = await this.#opening?.catch(() => undefined)
    this.#opening = undefined
    opened?.line.close()
    opened?.database.close()
  }

  async #extend(
    leases: readonly LeaseRef[],
    extend: (ledger: Ledger, lease: LeaseRef) => boolean,
  ): Promise<readonly Extension[]> {
    const ttlMs = Math.min(...leases.map((lease) => lease.ttlMs))
    try {
      return await this.#write({ resources: [], ttlMs }, ({ ledger }) =>
        leases.map((lease) => ({ kind: extend(ledger, lease) ? 'held' : 'lost' }) as const),
      )
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error))
      return leases.map(() => ({ kind: 'unknown', cause }))
    }
  }

  async #write<T>(about: Pick<LeaseRef, 'resources' | 'ttlMs'>, work: (opened: Opened) => T): Promise<T> {
    const opened = (await this.#open(true))!
    const { database, ledger } = opened
    return this.#retried(about, opened, () => {
      try {
        return database.transaction(() => work(opened))
      } catch (error) {
        if (!(error instanceof NotReserved)) throw error
        database.durably(() => ledger.reserve())
        return database.transaction(() => work(opened))
      }
    })
  }

  /**
   * SQLite could wait for the file by itself, but this process would do nothing else meanwhile. So it is told not to, and
   * we come back after a short while, not all at the same time.
   */
  async #retried<T>(
    { resources, ttlMs }: Pick<LeaseRef, 'resources' | 'ttlMs'>,
    { database }: Opened,
    work: () => T,
  ): Promise<T> {
    const untilMs = this.#clock.monotonicMs() + this.#settings.patienceMs(ttlMs)
    for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 20)) {
      try {
        return work()
      } catch (error) {
        if (!isBusy(error) || this.#clock.monotonicMs() >= untilMs) throw explained(error, database.path, resources)
      }
      await sleep(this.#clock, pauseMs * (0.5 + 0.5 * systemRandom.fraction()))
    }
  }

  async #open(create: boolean): Promise<Opened | undefined> {
    if (this.#closed) throw new EngineError('the file engine is closed', [], { transient: false })
    this.#opening ??= this.#openNow(create)
    const opening = this.#opening
    try {
      const opened = await opening
      if (opened !== undefined) return opened
    } catch (error) {
      if (this.#opening === opening) this.#opening = undefined
      throw error
    }
    if (this.#opening === opening) this.#opening = undefined
    return create ? this.#open(create) : undefined
  }

  async #openNow(create: boolean): Promise<Opened | undefined> {
    const { path, clock } = this.#settings
    const database = await openDatabase(path, { create })
    if (database === undefined) return undefined
    const machine = this.#settings.machine()
    const ledger = new Ledger(database, machine, clock)
    const line = new Line({
      clock,
      walPath: `${realpathSync(path)}-wal`,
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
    return { database, ledger, line }
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
