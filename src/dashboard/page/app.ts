import type { Events, Hello, LeaseChanges } from '../protocol.ts'
import { Ask } from './ask.ts'
import { every, nowMs } from './clock.ts'
import { Details } from './details.ts'
import { find, setText } from './dom.ts'
import { showEngines } from './engines.ts'
import { Feed, type FeedState } from './feed.ts'
import { count, duration } from './format.ts'
import { fillOrders, Grid } from './grid.ts'
import { Health } from './health.ts'
import { Leases } from './leases.ts'
import { PastSearch } from './past.ts'
import { startTheme } from './theme.ts'

/** Smooth enough for bars that take seconds to move by a pixel; few enough to cost next to nothing. */
const TICK_MS = 250

const STATES: Record<FeedState, string> = {
  connecting: 'connecting',
  'catching up': 'catching up',
  live: 'live',
  waiting: 'not connected',
}

class App {
  readonly #leases = new Leases()
  readonly #health = new Health()
  readonly #search = find('search', HTMLInputElement)
  readonly #grid: Grid
  readonly #details: Details
  readonly #ask: Ask
  readonly #past: PastSearch
  #server: string | undefined
  #engine = ''
  #connection: FeedState | undefined
  #lostAtMs: number | undefined
  #known = false
  #hasRuns = false
  #due = false

  constructor() {
    const filterBy = (holder: string): void => this.#filterBy(holder)
    this.#grid = new Grid(find('grid', HTMLElement), find('rows', HTMLElement), this.#leases, {
      open: (key) => this.#open(key),
      filterBy,
      repaint: () => this.#repaint(),
    })
    this.#details = new Details(this.#leases, {
      close: () => this.#close(),
      filterBy,
      release: (lease) => this.#ask.release(lease),
      extend: (lease) => this.#ask.extend(lease),
    })
    this.#ask = new Ask(() => this.#details.refresh())
    this.#past = new PastSearch({
      open: (resource) => this.#open(resource),
      close: () => this.#closePast(),
    })
  }

  start(): void {
    startTheme(find('theme', HTMLButtonElement))
    fillOrders(find('order', HTMLSelectElement), this.#grid)
    this.#grid.showOrder()
    this.#search.addEventListener('input', () => {
      this.#leases.search(this.#search.value)
      this.#repaint()
    })
    find('holder', HTMLButtonElement).addEventListener('click', () => this.#filterBy(undefined))
    find('job', HTMLButtonElement).addEventListener('click', () => this.#openJob())
    find('past-open', HTMLButtonElement).addEventListener('click', () => this.#openPast())
    document.addEventListener('keydown', (event) => this.#key(event))
    addEventListener('scroll', () => this.#repaint(), { passive: true })
    addEventListener('resize', () => {
      this.#grid.measure()
      this.#repaint()
    })
    this.#grid.measure()
    every(TICK_MS, () => this.#tick())
    new Feed({
      connection: (state) => this.#connected(state),
      event: (name, data) => this.#hear(name, data),
    }).open()
    this.#repaint()
  }

  #hear<K extends keyof Events>(name: K, data: Events[K]): void {
    const handlers: { [N in keyof Events]: (data: Events[N]) => void } = {
      hello: (hello) => this.#hello(hello),
      engines: ({ engines }) => showEngines(engines, this.#engine),
      leases: (changes) => this.#change(changes),
      nodes: ({ nodes }) => this.#health.showNodes(nodes),
      findings: (diagnosis) => this.#health.showDiagnosis(diagnosis),
      trouble: ({ message }) => this.#trouble(message),
      beat: () => {},
    }
    handlers[name](data)
  }

  #hello(hello: Hello): void {
    const { server, engine, may, loggedIn, version, limits } = hello
    setText(find('engine', HTMLElement), engine.name)
    setText(find('identity', HTMLElement), engine.identity.replace(/:$/, '') === engine.name ? '' : engine.identity)
    setText(find('version', HTMLElement), `ringfence ${version}`)
    setText(find('may', HTMLElement), may === 'write' ? 'read and write' : 'read only')
    find('logout', HTMLFormElement).hidden = !loggedIn
    document.title = `${engine.key} · ringfence`
    this.#engine = engine.key
    this.#hasRuns = hello.runs
    this.#details.allow(hello)
    this.#ask.limit(limits)
    // Whatever the server knew of the past began anew, and so did the doctor.
    if (this.#server !== undefined && this.#server !== server) {
      this.#health.showNodes([])
      this.#health.showDiagnosis({ score: 0, findings: [] })
      this.#trouble(null)
    }
    this.#server = server
    this.#details.refresh()
    this.#repaint()
  }

  #change(changes: LeaseChanges): void {
    if (!this.#leases.apply(changes, nowMs())) return
    this.#known = true
    const { resource } = this.#details
    const isOurs = (key: string): boolean => key === resource || key.startsWith(`${resource}\n`)
    const touched = changes.set.some((row) => row.resource === resource) || changes.gone.some(isOurs)
    if (resource !== undefined && touched) this.#details.refresh()
    this.#repaint()
  }

  #trouble(message: string | null): void {
    const banner = find('trouble', HTMLElement)
    banner.hidden = message === null
    setText(find('trouble-text', HTMLElement), message ?? '')
  }

  #connected(state: FeedState): void {
    // From here on what is shown gets old, until all of it was received again.
    if (state === 'waiting') this.#lostAtMs ??= nowMs()
    if (state === 'live') this.#lostAtMs = undefined
    // Each attempt would flicker otherwise: it is news only once it has worked.
    if (state === this.#connection || (state === 'connecting' && this.#connection === 'waiting')) return
    this.#connection = state
    const output = find('connection', HTMLElement)
    output.dataset['state'] = state
    setText(find('connection-text', HTMLElement), STATES[state])
    find('offline', HTMLElement).hidden = state !== 'waiting'
    document.body.toggleAttribute('data-old', this.#lostAtMs !== undefined)
    this.#tick()
  }

  /** At most one painting a frame, however many events came in; none while nobody looks. */
  #repaint(): void {
    if (this.#due) return
    this.#due = true
    requestAnimationFrame(() => {
      this.#due = false
      const now = nowMs()
      this.#grid.show(now)
      this.#details.show(now)
      this.#figures()
    })
  }

  #tick(): void {
    if (document.hidden) return
    const now = nowMs()
    this.#grid.tick(now)
    this.#details.tick(now)
    const ago =
      this.#lostAtMs === undefined || !this.#known ? '' : ` What you see is ${duration(now - this.#lostAtMs)} old.`
    setText(find('offline-age', HTMLElement), ago)
  }

  #figures(): void {
    const shown = this.#leases.view().length
    const { size, filtered, holder } = this.#leases
    const holders = new Set<string>()
    const counted = new Set<string>()
    let waiters: number | undefined
    let held = 0
    for (const { resource, holder, offered, waiters: waiting } of this.#leases.all()) {
      if (!offered) {
        held++
        holders.add(holder)
      }
      // Those who share a resource have the same ones waiting.
      if (waiting !== null && !counted.has(resource)) waiters = (waiters ?? 0) + waiting
      counted.add(resource)
    }
    setText(find('figure-leases', HTMLElement), this.#known ? count(held) : '–')
    setText(find('figure-holders', HTMLElement), this.#known ? count(holders.size) : '–')
    setText(find('figure-waiters', HTMLElement), waiters === undefined ? '–' : count(waiters))
    document.body.classList.toggle('waiters-unknown', size > 0 && waiters === undefined)
    setText(find('shown', HTMLElement), filtered ? `${count(shown)} of ${count(size)}` : '')
    find('grid', HTMLElement).classList.toggle('empty', shown === 0)
    find('none', HTMLElement).hidden = !this.#known || size > 0
    find('no-match', HTMLElement).hidden = size === 0 || shown > 0
    find('loading', HTMLElement).hidden = this.#known
    const chip = find('holder', HTMLButtonElement)
    chip.hidden = holder === undefined
    setText(find('holder-name', HTMLElement), holder ?? '')
    const job = this.#job()
    find('job', HTMLButtonElement).hidden = job === undefined
    setText(find('job-name', HTMLElement), job ?? '')
  }

  #filterBy(holder: string | undefined): void {
    this.#leases.filterBy(holder)
    this.#repaint()
    if (holder === undefined) this.#focusList()
  }

  /** A list without a row is not there to be focused. */
  #focusList(): void {
    if (this.#leases.view().length > 0) this.#grid.focus()
    else this.#search.focus()
  }

  /** The name in the search field, if nobody holds it. What it is a name of may have run, even so. */
  #job(): string | undefined {
    const name = this.#search.value.trim()
    return this.#hasRuns && name !== '' && !this.#leases.isHeld(name) ? name : undefined
  }

  #openJob(): void {
    const job = this.#job()
    if (job !== undefined) this.#open(job, true)
  }

  #openPast(): void {
    if (this.#details.isOpen) this.#close()
    this.#past.open(this.#search.value)
  }

  #closePast(): void {
    this.#past.close()
    find('past-open', HTMLButtonElement).focus()
  }

  /** The details are in front of a search of the history, which is there again when they are closed. */
  #open(key: string, isSought = false): void {
    this.#grid.opened = key
    this.#details.open(key, isSought)
    this.#repaint()
  }

  #close(): void {
    this.#grid.opened = undefined
    this.#details.close()
    if (this.#past.isOpen) document.body.classList.add('with-details')
    else this.#focusList()
    this.#repaint()
  }

  #key(event: KeyboardEvent): void {
    if (this.#ask.isOpen || event.ctrlKey || event.metaKey || event.altKey) return
    const searching = event.target === this.#search
    if (event.key === '/' && !(event.target instanceof HTMLInputElement)) this.#search.focus()
    else if (event.key === 'ArrowDown' && searching) this.#focusList()
    else if (event.key === 'Enter' && searching) this.#openJob()
    else if (event.key !== 'Escape') return
    else if (this.#details.isOpen) this.#close()
    else if (this.#past.isOpen) this.#closePast()
    else if (searching || this.#leases.filtered) this.#clear()
    else return
    event.preventDefault()
  }

  #clear(): void {
    this.#search.value = ''
    this.#leases.search('')
    this.#filterBy(undefined)
  }
}

new App().start()
