import type { Clock, Timer } from '../../clock.ts'
import type { Engine, Finding } from '../../engine.ts'
import { messageOf } from '../../errors.ts'
import { Board } from './board.ts'
import { Chunks, GREETING, HEARTBEAT, Snapshot, type Chunk } from './chunks.ts'
import type { DashboardSettings } from './options.ts'
import type { Diagnosis, EngineRow, Events, FindingRow, Hello, History, NodeRow, Past } from '../protocol.ts'
import type { Journal, JournalEntry } from './journal.ts'
import { entryOf, found } from './past.ts'
import { Refused } from './problem.ts'
import { Scanner } from './scanner.ts'
import { EventStream } from './stream.ts'
import { Upkeep } from './upkeep.ts'
import { whyStuck } from './why.ts'

/** Proxies close what is silent, often after 30 s or 60 s. */
const BEAT_MS = 15_000
/** A page reconnects after this many beats and is authenticated again: its rights can end unnoticed for at most that long. */
const MOST_BEATS = 3_600_000 / BEAT_MS
/** What was seen this recently is shown to a new page at once; otherwise the page waits for the look that it has caused. */
const RECENT_MS = 15_000

/** Each reads the whole file. */
const MOST_SEARCHES = 4

const SAYS: Record<FindingRow['severity'], string> = {
  critical: 'critical findings',
  warning: 'warnings',
  note: '',
  ok: '',
}

export interface PagesPlan {
  /** What this dashboard calls the engine. */
  readonly key: string
  readonly settings: DashboardSettings
  check(): Promise<readonly Finding[]>
  /** Where the history goes, beside the memory of this process. */
  readonly journal: Journal | undefined
  /** What was there before this process. */
  readonly old: readonly JournalEntry[]
  /** A page was opened or closed, or what `row` says may have changed. */
  changed(): void
}

/** The open pages of one engine, and the one look at it that they share. */
export class Pages {
  readonly board: Board
  readonly #plan: PagesPlan
  readonly #settings: DashboardSettings
  readonly #clock: Clock
  readonly #chunks: Chunks
  readonly #scanner: Scanner
  readonly #scanning: Promise<void>
  readonly #upkeep: Upkeep
  /** Each with the request that it answers: a request that is collected no longer hears that it is aborted. */
  readonly #streams = new Map<EventStream, { beats: number; readonly request: Request }>()
  readonly #latest: { nodes?: Chunk; findings?: Chunk } = {}
  /** As of the last time that they were asked; undefined: not yet. */
  nodes: readonly NodeRow[] | undefined
  diagnosis: Diagnosis | undefined
  #snapshot: Snapshot | undefined
  #lookedMs = -Infinity
  #looks = 0
  #failedLooks = 0
  #searches = 0
  #trouble: string | null = null
  #beat: Timer | undefined
  #isClosed = false

  constructor(engine: Engine, plan: PagesPlan) {
    const { settings } = plan
    const { clock, redact, everyMs, idleMs } = settings
    this.#plan = plan
    this.#settings = settings
    this.#clock = clock
    const { key, journal } = plan
    const offsetMs = (): number => clock.wallMs() - clock.monotonicMs()
    this.board = new Board(clock, (resource, happened) => {
      journal?.add(entryOf(key, resource, happened, offsetMs()))
    })
    for (const { engine: of, at, resource, token, ...rest } of plan.old)
      if (of === key) this.board.remember(resource, { ...rest, token: BigInt(token), atMs: at - offsetMs() })
    this.#chunks = new Chunks(clock)
    this.#scanner = new Scanner(engine, this.board, {
      clock,
      everyMs,
      idleMs,
      changed: () => this.flush(),
      looked: (failure) => this.#looked(failure),
    })
    this.#upkeep = new Upkeep(engine, {
      clock,
      redact,
      check: () => plan.check(),
      nodes: (nodes) => {
        this.nodes = nodes
        this.#keep('nodes', this.#chunks.event('nodes', { nodes }))
      },
      diagnosis: (diagnosis) => {
        this.diagnosis = diagnosis
        this.#keep('findings', this.#chunks.event('findings', diagnosis))
      },
    })
    this.#scanning = this.#scanner.run()
  }

  /** Open pages, and complete or failed looks so far. */
  get counts(): { readonly streams: number; readonly looks: number; readonly leases: number } {
    return { streams: this.#streams.size, looks: this.#looks, leases: this.board.size }
  }

  /** How the last looks went. `trouble`: why the last one failed. */
  get looks(): {
    readonly done: number
    readonly failed: number
    readonly agoMs: number
    readonly trouble: string | null
  } {
    const agoMs = this.#clock.monotonicMs() - this.#lookedMs
    return { done: this.#looks - this.#failedLooks, failed: this.#failedLooks, agoMs, trouble: this.#trouble }
  }

  /** How the engine is, for those who look at another one. */
  row(): EngineRow {
    const { key } = this.#plan
    const leases = this.board.size
    if (this.#trouble !== null) return { key, leases, severity: 'critical', says: 'could not be looked through' }
    if (this.#looks === 0) return { key, leases, says: 'not looked at yet' }
    const { nodes = [], diagnosis } = this
    const worst = diagnosis?.findings[0]?.severity ?? 'ok'
    const silent = nodes.filter(({ error }) => error !== undefined).length
    const sitOut = nodes.filter(({ sitsOutMs }) => sitsOutMs !== undefined).length
    if (silent + sitOut > 0) {
      const severity = worst === 'critical' ? worst : 'warning'
      const says = [silent > 0 ? `${silent} of ${nodes.length} silent` : '', sitOut > 0 ? `${sitOut} sit out` : '']
      return { key, leases, severity, says: says.filter(Boolean).join(', ') }
    }
    return { key, leases, severity: worst, says: SAYS[worst] }
  }

  /** What happened to a resource, and why it may be stuck. */
  history(resource: string): History {
    const { board, nodes = [], diagnosis } = this
    const past = board.history(resource)
    const why = whyStuck({
      ...past,
      rows: board.of(resource),
      nodes,
      diagnosis,
      trouble: this.#trouble,
      nowMs: this.#clock.monotonicMs(),
    })
    return { ...past, why }
  }

  /** The history of all resources. */
  async past(words: string): Promise<Past> {
    const { key, journal } = this.#plan
    if (this.#searches >= MOST_SEARCHES)
      throw new Refused(503, `${this.#searches} searches are under way`, { 'retry-after': '1' })
    this.#searches++
    try {
      const offsetMs = this.#clock.wallMs() - this.#clock.monotonicMs()
      const entries =
        (await journal?.readInTurns())?.filter(({ engine }) => engine === key) ??
        this.board.past().map(([resource, happened]) => entryOf(key, resource, happened, offsetMs))
      return found(entries, words, journal)
    } finally {
      this.#searches--
    }
  }

  /** Ends with its request too: some servers abort the request where others cancel the answer's body. */
  open(hello: Hello, engines: readonly EngineRow[], request: Request): ReadableStream<Uint8Array> {
    const stream = new EventStream(() => {
      this.#streams.delete(stream)
      if (this.#streams.size === 0) this.#watched(false)
      this.#plan.changed()
    })
    this.#streams.set(stream, { beats: 0, request })
    request.signal.addEventListener('abort', () => stream.close(), { once: true })
    stream.push(GREETING)
    stream.push(this.#chunks.event('hello', hello))
    stream.push(this.#chunks.event('engines', { engines }))
    for (const chunk of [this.#latest.nodes, this.#latest.findings]) if (chunk !== undefined) stream.push(chunk)
    if (this.#trouble !== null) stream.push(this.#chunks.event('trouble', { message: this.#trouble }))
    if (this.#clock.monotonicMs() - this.#lookedMs < RECENT_MS) this.#enliven(stream)
    if (this.#streams.size === 1) this.#watched(true)
    this.#plan.changed()
    return stream.body
  }

  /** Someone reads what is known of this engine, at a page of another one or by a program. */
  ask(isAsked: boolean): void {
    this.#scanner.ask(isAsked && !this.#isClosed)
    this.#upkeep.watch(isAsked && !this.#isClosed)
  }

  tell<Name extends Exclude<keyof Events, 'leases'>>(name: Name, data: Events[Name]): void {
    if (this.#streams.size > 0) this.#broadcast(this.#chunks.event(name, data))
  }

  /** Tells what has changed on the board. */
  flush(): void {
    if (this.board.news === 0) return
    this.#snapshot?.retire()
    this.#snapshot = undefined
    const chunk = this.#chunks.leases({ reset: false, more: false, ...this.board.changes() })
    for (const stream of this.#streams.keys()) if (stream.isLive) stream.push(chunk)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#watched(false)
    this.ask(false)
    this.#scanner.close()
    for (const stream of this.#streams.keys()) stream.close()
    // A look that hangs is not waited for; what it answers later is not listened to.
    await Promise.race([this.#scanning, new Promise<void>((over) => void this.#clock.timer(over, 1000, true))])
  }

  #looked(failure: unknown): void {
    this.#lookedMs = this.#clock.monotonicMs()
    this.#looks++
    if (failure !== undefined) this.#failedLooks++
    const message = failure === undefined ? null : this.#settings.redact(messageOf(failure))
    if (message !== this.#trouble) {
      this.#trouble = message
      this.#broadcast(this.#chunks.event('trouble', { message }))
    }
    for (const stream of this.#streams.keys()) if (!stream.isLive) this.#enliven(stream)
    this.#plan.changed()
  }

  #enliven(stream: EventStream): void {
    this.#snapshot ??= new Snapshot(this.board, this.#chunks)
    stream.isLive = true
    stream.pushParts(this.#snapshot.parts())
  }

  #watched(isWatched: boolean): void {
    this.#scanner.watch(isWatched)
    this.#beat?.cancel()
    this.#beat = undefined
    if (isWatched) this.#nextBeat()
  }

  #nextBeat(): void {
    this.#beat = this.#clock.timer(
      () => {
        for (const [stream, age] of this.#streams) {
          if (++age.beats > MOST_BEATS) stream.close()
          else stream.beat(HEARTBEAT)
        }
        if (this.#streams.size > 0) this.#nextBeat()
      },
      BEAT_MS,
      true,
    )
  }

  #keep(name: 'nodes' | 'findings', chunk: Chunk): void {
    this.#latest[name] = chunk
    this.#broadcast(chunk)
    this.#plan.changed()
  }

  #broadcast(chunk: Chunk): void {
    for (const stream of this.#streams.keys()) stream.push(chunk)
  }
}
