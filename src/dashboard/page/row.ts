import { element } from './dom.ts'
import { duration } from './format.ts'
import { fractionLeft, type ShownLease } from './leases.ts'

/** How long a new grant stands out. */
const FRESH_MS = 1_500
/** A holder that renews at a third of the ttl never comes below these. */
const LOW = 0.4
const VERY_LOW = 0.15

/** What a bar says by its length, and by its colour where it is short. */
export class Bar {
  readonly root = element('span', { class: 'bar' })
  readonly #fill = element('span')
  #shown: string | undefined

  constructor() {
    this.root.append(this.#fill)
  }

  show(fraction: number | undefined): void {
    const scale = fraction === undefined ? '' : fraction.toFixed(3)
    if (scale === this.#shown) return
    this.#shown = scale
    this.root.dataset['level'] = level(fraction)
    // Scaled and not resized: no layout, whatever the number of bars.
    this.#fill.style.setProperty('transform', `scaleX(${scale === '' ? 1 : scale})`)
  }
}

function level(fraction: number | undefined): string {
  if (fraction === undefined) return 'endless'
  if (fraction > LOW) return 'fine'
  return fraction > VERY_LOW ? 'low' : 'very-low'
}

export function leftText({ endsAtMs }: ShownLease, nowMs: number): string {
  if (endsAtMs === null) return 'no end'
  return endsAtMs <= nowMs ? 'ending' : duration(endsAtMs - nowMs, true)
}

/** Nobody holds what is only offered. */
function holderText({ holder, note, offered }: ShownLease): string {
  const text = note === null ? holder : `${holder} (${note})`
  return offered ? `offered to ${text}` : text
}

/** An offer has none. */
export function tokenText({ token, offered }: ShownLease): string {
  return offered ? '–' : token
}

export function heldText({ heldSinceMs, heldExact, offered }: ShownLease, nowMs: number): string {
  if (offered) return '–'
  return `${heldExact ? '' : '≥ '}${duration(nowMs - heldSinceMs)}`
}

/** One line of the list. It is used for one lease after the other, and touches only what differs. */
export class Row {
  readonly root: HTMLElement
  lease: ShownLease | undefined
  readonly #resource = element('bdi')
  readonly #holder = element('bdi', { class: 'holder' })
  readonly #shared = element('span', { class: 'shared' })
  readonly #token = cell('token')
  readonly #held = cell('held')
  readonly #left = element('span', { class: 'time' })
  readonly #waiters = cell('waiters')
  readonly #bar = new Bar()
  readonly #shown = new Map<Element, string>()
  #index = -1
  #state = ''

  constructor(id: string) {
    this.root = element(
      'div',
      { class: 'row', role: 'row', id },
      cell('resource', this.#resource),
      cell('holder', this.#holder, this.#shared),
      this.#token,
      this.#held,
      cell('left', this.#bar.root, this.#left),
      this.#waiters,
    )
  }

  /** Puts the row at its place in the list. */
  place(lease: ShownLease, index: number, heightPx: number): void {
    this.lease = lease
    if (this.#index === index) return
    this.#index = index
    this.root.setAttribute('aria-rowindex', String(index + 2))
    this.root.style.setProperty('transform', `translateY(${index * heightPx}px)`)
  }

  moved(): void {
    this.#index = -1
  }

  paint(nowMs: number, chosen: boolean, opened: boolean): void {
    const lease = this.lease
    if (lease === undefined) return
    this.#write(this.#resource, lease.resource)
    this.#write(this.#holder, holderText(lease))
    this.#write(this.#shared, lease.shared ? ' shared' : '')
    this.#write(this.#token, tokenText(lease))
    this.#write(this.#waiters, lease.waiters === null ? '–' : String(lease.waiters))
    this.#write(this.#held, heldText(lease, nowMs))
    this.#write(this.#left, leftText(lease, nowMs))
    this.#bar.show(fractionLeft(lease, nowMs))
    const over = lease.endsAtMs !== null && lease.endsAtMs <= nowMs
    const fresh = nowMs - lease.grantedAtMs < FRESH_MS
    const awaited = (lease.waiters ?? 0) > 0
    const { disguised } = lease
    const marks = { fresh, over, awaited, disguised, chosen, opened }
    this.#mark(Object.entries(marks).flatMap(([mark, is]) => (is ? [mark] : [])))
  }

  #write(target: HTMLElement, text: string): void {
    if (this.#shown.get(target) === text) return
    this.#shown.set(target, text)
    target.textContent = text
  }

  #mark(marks: readonly string[]): void {
    const state = marks.join(' ')
    if (state === this.#state) return
    this.#state = state
    this.root.dataset['state'] = state
    this.root.setAttribute('aria-selected', String(marks.includes('opened')))
  }
}

function cell(name: string, ...children: readonly Node[]): HTMLElement {
  return element('div', { class: `cell ${name}`, role: 'gridcell' }, ...children)
}
