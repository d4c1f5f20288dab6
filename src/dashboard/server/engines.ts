import type { Timer } from '../../clock.ts'
import type { Engine, Finding } from '../../engine.ts'
import type { EngineRow, EnginesHealth, Hello } from '../protocol.ts'
import type { Audit } from './audit.ts'
import { Forcing } from './forcing.ts'
import { Journal } from './journal.ts'
import type { DashboardSettings } from './options.ts'
import { Pages } from './pages.ts'
import { Refused } from './problem.ts'

/** An engine, and what this dashboard calls it. */
export interface NamedEngine {
  readonly key: string
  readonly engine: Engine
  readonly check: () => Promise<readonly Finding[]>
}

/** One engine with its pages. */
export interface WatchedEngine {
  readonly key: string
  readonly engine: Engine
  readonly pages: Pages
  readonly forcing: Forcing
}

const RETRY_AFTER_S = '10'
/** A program that reads the figures comes again within a minute or two; until then they are kept fresh. */
const ASKED_MS = 150_000

/** All engines of one dashboard. The first one is meant where none is named. */
export class Engines {
  readonly all: readonly WatchedEngine[]
  /** Where the history is kept, beside the memory of this process. */
  readonly journal: Journal | undefined
  readonly #settings: DashboardSettings
  #asked: Timer | undefined
  #isAttended = false
  #told = ''
  #isClosed = false

  constructor(named: readonly NamedEngine[], settings: DashboardSettings, audit: Audit) {
    const { clock, redact } = settings
    this.#settings = settings
    const journal = settings.history === undefined ? undefined : new Journal(settings.history, clock)
    this.journal = journal
    const old = journal?.read() ?? []
    this.all = named.map(({ key, engine, check }) => {
      const pages = new Pages(engine, { key, settings, check, journal, old, changed: () => this.#changed() })
      const about = named.length > 1 ? { engine: key } : {}
      return { key, engine, pages, forcing: new Forcing(engine, { clock, redact, pages, audit, about }) }
    })
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** Of all engines together. */
  get counts(): { readonly streams: number; readonly looks: number; readonly leases: number } {
    const counts = this.all.map(({ pages }) => pages.counts)
    const sum = (name: 'streams' | 'looks' | 'leases'): number => counts.reduce((total, one) => total + one[name], 0)
    return { streams: sum('streams'), looks: sum('looks'), leases: sum('leases') }
  }

  /** Undefined: there is none of that name. */
  find(key: string | null): WatchedEngine | undefined {
    return key === null ? this.all[0] : this.all.find((one) => one.key === key)
  }

  open({ pages }: WatchedEngine, hello: Hello, request: Request): ReadableStream<Uint8Array> {
    const headers = { 'retry-after': RETRY_AFTER_S }
    if (this.#isClosed) throw new Refused(503, 'the dashboard is closed', headers)
    const { streams } = this.counts
    if (streams >= this.#settings.streams)
      throw new Refused(503, `${streams} pages are open, and no more are allowed`, headers)
    return pages.open(hello, this.#rows(), request)
  }

  health(): EnginesHealth {
    const states = this.all.map(({ key, pages: { looks } }) => {
      const isKnown = looks.done + looks.failed > 0
      return [key, looks.trouble !== null ? 'unreachable' : isKnown ? 'reachable' : 'unknown'] as const
    })
    const isFailing = states.some(([, state]) => state === 'unreachable')
    return { status: isFailing ? 'failing' : 'ok', engines: Object.fromEntries(states) }
  }

  /** A program reads the figures: from now on they are kept fresh for a while. */
  ask(): void {
    this.#asked?.cancel()
    const over = (): void => {
      this.#asked = undefined
      this.#attend()
    }
    this.#asked = this.#isClosed ? undefined : this.#settings.clock.timer(over, ASKED_MS, true)
    this.#attend()
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#asked?.cancel()
    this.#asked = undefined
    await Promise.all(this.all.map(({ pages }) => pages.close()))
    await this.journal?.close()
  }

  #changed(): void {
    // While the engines are made one after the other, there is nobody to tell.
    if (this.all === undefined) return
    this.#attend()
    if (this.all.length === 1) return
    const engines = this.#rows()
    const told = JSON.stringify(engines)
    if (told === this.#told) return
    this.#told = told
    for (const { pages } of this.all) pages.tell('engines', { engines })
  }

  #rows(): EngineRow[] {
    return this.all.map(({ pages }) => pages.row())
  }

  #attend(): void {
    const isAsked = !this.#isClosed && (this.#asked !== undefined || this.counts.streams > 0)
    if (isAsked === this.#isAttended) return
    this.#isAttended = isAsked
    for (const { pages } of this.all) pages.ask(isAsked)
  }
}
