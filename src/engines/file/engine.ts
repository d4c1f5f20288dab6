import { given } from '../../arguments.ts'
import { backOffMs } from '../../back-off.ts'
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
  NodeState,
  QueuedGrant,
  Refusal,
  Release,
} from '../../engine.ts'
import { asError, EngineError } from '../../errors.ts'
import type { Random } from '../../random.ts'
import { LONGEST_TTL_MS } from '../shared/limits.ts'
import { probed } from '../shared/probe.ts'
import { OwnTurns } from '../shared/own-turns.ts'
import { NotReserved } from './counter.ts'
import { FileMovedError, openDatabase, type Database } from './database.ts'
import { checkFile } from './doctor.ts'
import { fileError, isBusy } from './errors.ts'
import type { Machine } from './machine.ts'
import { FileQueue } from './queue.ts'
import { FileSteps, type AttemptOutcome } from './steps.ts'

export interface FileSettings {
  readonly path: string
  readonly clock: MachineClock
  readonly random: Random
  /** How long a call may find the file busy. */
  readonly requestTimeoutMs: (ttlMs: number) => number
  readonly machine: () => Machine
  /** A lease ends with the process that holds it. */
  readonly endsWithProcess: boolean
}

/** What a call is about. */
interface CallSubject {
  readonly resources: readonly string[]
  readonly ttlMs: number
}

/** The file, once it is open. */
interface OpenFile {
  readonly database: Database
  readonly steps: FileSteps
  readonly queue: FileQueue
}

/**
 * Which file a call uses. `here`: the file at the path, which others use too. `create`: the same, and it is created if it does
 * not exist; otherwise that leads to `undefined`. `anywhere`: also a file that was removed.
 */
type FileAccess = 'here' | 'create' | 'anywhere'

const GUARANTEES: Guarantees = {
  exclusion: 'one machine',
  clock: 'this machine',
  token: 'a counter in the file, which also follows the wall clock where that is ahead',
  survives: { serverRestart: 'yes', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served by process',
  shared: true,
}

const LIMITS: EngineLimits = {
  maxTtlMs: LONGEST_TTL_MS,
  // One clock measures both the lease and its validity.
  driftMs: () => 0,
}

/** For calls that are not about a lease. */
const NO_TTL_MS = 10_000

/** A name that no resource has. */
const NO_RESOURCE = ''

/** Between two tries while the file is busy. */
const BUSY_PAUSE = { firstMs: 1, mostMs: 20 }

/** Soon enough for the waiters behind, without keeping the file busier. */
const GIVE_UP_AGAIN_MS = 50

export class FileEngine implements Engine {
  readonly name = 'file'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits = LIMITS
  readonly #settings: FileSettings
  readonly #clock: MachineClock
  #opened: OpenFile | undefined
  #opening: Promise<void> | undefined
  #closed = false
  /** Owners that no longer wait, while their tickets may still be in the file. */
  readonly #givenUp = new Set<string>()
  #givingUp: Timer | undefined
  readonly #turns: OwnTurns

  constructor(settings: FileSettings) {
    this.identity = `file:${settings.path}`
    this.#settings = settings
    this.#clock = settings.clock
    this.#turns = new OwnTurns(() => settings.clock.machineMs())
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const outcome = await this.#grant(request, (steps) => steps.acquire(request))
    return outcome.kind === 'granted' ? granted(outcome) : refusal(outcome)
  }

  async enqueue(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant> {
    const beganMs = this.#clock.monotonicMs()
    let placeMs: number | undefined = this.#turns.sinceMs(request)
    try {
      for (;;) {
        signal.throwIfAborted()
        const since = instant(this.#clock)
        const outcome = await this.#grant(request, (steps) => steps.takeTurn(request, placeMs))
        if (outcome.kind === 'granted') return { ...granted(outcome), since }
        // A place that it loses, because it did not take its turn, is not given back to it.
        placeMs = undefined
        await this.#opened?.queue.wait(outcome.by, beganMs, signal)
      }
    } catch (error) {
      this.#givenUp.add(request.owner)
      await this.#giveUp(request.ttlMs)
      throw error
    }
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    return this.#extend(leases, (steps, lease) => steps.extend(lease))
  }

  async leave(lease: LeaseRef): Promise<Extension> {
    const [answer] = await this.#extend([lease], (steps) => steps.leave(lease))
    return answer!
  }

  /** Not `handOver`: within a process it would pass those who wait in the file. */
  async adopt(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const undo = ({ steps }: OpenFile): unknown => steps.release(next)
    const outcome = await this.#write(next, 'here', ({ steps }) => steps.adopt(lease, next), undo)
    return outcome?.kind === 'granted' ? granted(outcome) : { kind: 'refused', reason: 'held' }
  }

  async release(lease: LeaseRef): Promise<Release> {
    this.#turns.releasing(lease.resources)
    const ours = (await this.#write(lease, 'anywhere', ({ steps }) => steps.release(lease))) ?? false
    // The queue in the file decides who is next: nobody in this process needs to let others go first.
    return { ours, awaited: 0 }
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const about = { resources: resource === undefined ? [] : [resource], ttlMs: NO_TTL_MS }
    yield* (await this.#retried(about, 'here', ({ steps }) => steps.held(resource))) ?? []
  }

  /** A read of the file, which is not created. Its clock is ours. */
  async probe(): Promise<readonly NodeState[]> {
    const about = { resources: [], ttlMs: NO_TTL_MS }
    const read = async (): Promise<undefined> => {
      await this.#retried(about, 'here', ({ steps }) => steps.held(NO_RESOURCE))
    }
    return [await probed(this.#settings.path, this.#clock, read)]
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    const { path, machine, clock } = this.#settings
    const about = { resources: [], ttlMs }
    return checkFile({
      path,
      ttlMs,
      clock,
      machine,
      open: async () => (await this.#write(about, 'create', ({ database }) => database))!,
      writeToDisk: () =>
        this.#retried(about, 'create', ({ database, steps }) => database.durably(() => steps.reserve())),
    })
  }

  async init(): Promise<readonly string[]> {
    const { path } = this.#settings
    const about = { resources: [], ttlMs: NO_TTL_MS }
    const found = await this.#retried(about, 'here', () => true)
    if (found === true) return [`${path} existed already.`]
    await this.#write(about, 'create', () => undefined)
    return [`Created ${path}, which only this user can read and write.`]
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#givingUp?.cancel()
    await this.#opening?.catch(() => undefined)
    if (this.#givenUp.size > 0) await this.#giveUp(NO_TTL_MS)
    this.#forget()
  }

  /**
   * Removes the tickets of owners that no longer wait. While the file is busy that fails, and a ticket that stays would cost
   * everyone after it the time of a turn: so it is tried again until it succeeds.
   */
  async #giveUp(ttlMs: number): Promise<void> {
    const owners = [...this.#givenUp]
    try {
      await this.#write({ resources: [], ttlMs }, 'anywhere', ({ steps }) =>
        owners.forEach((owner) => steps.giveUpTicket(owner)),
      )
      for (const owner of owners) this.#givenUp.delete(owner)
    } catch {
      if (this.#closed) return
      // In the background: the tickets of a process that has ended block nobody.
      this.#givingUp ??= this.#clock.timer(
        () => {
          this.#givingUp = undefined
          void this.#giveUp(NO_TTL_MS)
        },
        GIVE_UP_AGAIN_MS,
        true,
      )
    }
  }

  /** A grant that other processes might not see is undone. */
  async #grant(request: LeaseRequest, work: (steps: FileSteps) => AttemptOutcome): Promise<AttemptOutcome> {
    const undo = ({ steps }: OpenFile): unknown => steps.release(request)
    return (await this.#write(request, 'create', ({ steps }) => work(steps), undo))!
  }

  async #extend(
    leases: readonly LeaseRef[],
    extend: (steps: FileSteps, lease: LeaseRef) => boolean,
  ): Promise<readonly Extension[]> {
    const about = { resources: [], ttlMs: Math.min(...leases.map((lease) => lease.ttlMs)) }
    try {
      const held = await this.#write(about, 'here', ({ steps }) => leases.map((lease) => extend(steps, lease)))
      return leases.map((_, index) => ({ kind: held?.[index] === true ? 'held' : 'lost' }))
    } catch (error) {
      // Other processes use another file by now and do not see our leases.
      if (error instanceof FileMovedError && error.place === 'replaced') return leases.map(() => ({ kind: 'lost' }))
      const cause = asError(error)
      return leases.map(() => ({ kind: 'unknown', cause }))
    }
  }

  /**
   * A transaction. Afterwards, unless it may be `anywhere`, we look whether the path still leads to our file. If we looked
   * before, the file might be removed between the look and the commit, and a process that creates a new one finds no lease in it.
   */
  #write<T>(
    about: CallSubject,
    access: FileAccess,
    work: (opened: OpenFile) => T,
    undo?: (opened: OpenFile) => unknown,
  ): Promise<T | undefined> {
    return this.#retried(about, access, (opened) => {
      const { database } = opened
      const result = this.#transaction(opened, () => work(opened))
      const place = access === 'anywhere' ? 'here' : database.place()
      if (place === 'here') return result
      if (undo !== undefined) database.transaction(() => undo(opened))
      throw new FileMovedError(database.path, place, about.resources)
    })
  }

  #transaction<T>({ database, steps }: OpenFile, work: () => T): T {
    for (;;) {
      try {
        return database.transaction(work)
      } catch (error) {
        if (!(error instanceof NotReserved)) throw error
        database.durably(() => steps.reserve())
      }
    }
  }

  /**
   * SQLite could wait for the file itself, but then it would block this process. So it does not wait, and we try again after a
   * short pause, which is random so that not all processes come at the same time.
   */
  async #retried<T>(about: CallSubject, access: FileAccess, work: (opened: OpenFile) => T): Promise<T | undefined> {
    const untilMs = this.#clock.monotonicMs() + this.#settings.requestTimeoutMs(about.ttlMs)
    for (let failures = 0; ; failures++) {
      try {
        if (this.#opened !== undefined && access !== 'anywhere') this.#leaveOldFile(this.#opened, about.resources)
        if (this.#opened === undefined) await this.#open(access === 'create')
        if (this.#opened !== undefined) return work(this.#opened)
        if (access !== 'create') return undefined
      } catch (error) {
        const isLate = this.#clock.monotonicMs() >= untilMs
        if (!isBusy(error) || isLate) throw fileError(error, this.#settings.path, about.resources)
      }
      await sleep(this.#clock, backOffMs(this.#settings.random, BUSY_PAUSE, failures))
    }
  }

  /**
   * If the file was removed or replaced, other processes may hold leases in the old one, which only processes like this one
   * still see. Nobody can renew them any more, so the old file is closed once they have ended.
   */
  #leaveOldFile({ database, steps }: OpenFile, resources: readonly string[]): void {
    const place = database.place()
    if (place === 'here') return
    if (steps.held().length > 0) throw new FileMovedError(database.path, place, resources)
    this.#forget()
  }

  async #open(create: boolean): Promise<void> {
    if (this.#closed)
      throw new EngineError('the file engine is closed; make a new one: file(path)', [], { transient: false })
    this.#opening ??= this.#openNow(create).finally(() => (this.#opening = undefined))
    await this.#opening
  }

  async #openNow(create: boolean): Promise<void> {
    const { path, clock, endsWithProcess } = this.#settings
    const machine = this.#settings.machine()
    // A runtime that cannot tell the time of the machine must not create the file.
    clock.machineMs()
    const database = await openDatabase(path, { create, random: this.#settings.random })
    if (database === undefined) return
    const steps = new FileSteps(database, machine, clock, { endsWithProcess })
    const queue = new FileQueue({
      clock,
      logPath: database.logPath,
      isGone: (process) => machine.isGone(process),
      stands: (blocker) => {
        try {
          return steps.stands(blocker)
        } catch {
          // It is not known: the next try says why.
          return false
        }
      },
    })
    this.#opened = { database, steps, queue }
  }

  #forget(): void {
    const opened = this.#opened
    this.#opened = undefined
    opened?.queue.close()
    opened?.database.close()
  }
}

function granted({ token }: Extract<AttemptOutcome, { kind: 'granted' }>): Grant {
  return { kind: 'granted', token: BigInt(token) }
}

function refusal({ by }: Extract<AttemptOutcome, { kind: 'blocked' }>): Refusal {
  const holder = by.kind === 'lease' ? by.owner : undefined
  return { kind: 'refused', reason: 'held', ...given({ holder, remainingMs: by.remainingMs }) }
}
