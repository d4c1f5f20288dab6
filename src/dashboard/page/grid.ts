import { element } from './dom.ts'
import type { Column, ShownLease, Leases } from './leases.ts'
import { Row } from './row.ts'

/** Rows above and below what is in view, so that a short scroll finds them ready. */
const OVERSCAN = 6

export interface GridActions {
  open(key: string): void
  filterBy(holder: string): void
  /** Something other than the leases has changed: paint with the next frame. */
  repaint(): void
}

/**
 * The list of leases. Only the rows in view exist; the page itself scrolls, so that a phone's address bar and the
 * browser's own keys work as everywhere. The focus is on the list and never on a row, which may be taken for another
 * lease at any time: `aria-activedescendant` names the row.
 */
export class Grid {
  readonly #root: HTMLElement
  readonly #body: HTMLElement
  readonly #leases: Leases
  readonly #actions: GridActions
  #rows: Row[] = []
  #made = 0
  #heightPx = 0
  #lengthPx = -1
  /** Known by its key, because rows move. */
  #chosen: string | undefined
  #chosenIndex = 0
  /** The key of the one whose details are shown. */
  opened: string | undefined

  constructor(root: HTMLElement, body: HTMLElement, leases: Leases, actions: GridActions) {
    this.#root = root
    this.#body = body
    this.#leases = leases
    this.#actions = actions
    root.addEventListener('keydown', (event) => this.#key(event))
    root.addEventListener('focus', () => this.#actions.repaint())
    body.addEventListener('click', (event) => this.#click(event))
    for (const header of root.querySelectorAll<HTMLElement>('[data-column]')) {
      header.querySelector('button')?.addEventListener('click', () => this.sort(header.dataset['column'] as Column))
    }
  }

  focus(): void {
    this.#root.focus({ preventScroll: true })
  }

  /** The same column again turns the order round; numbers of waiting and held begin with the greatest. */
  sort(column: Column, descending?: boolean): void {
    const again = column === this.#leases.column
    const turned = again ? !this.#leases.descending : column === 'waiters' || column === 'held'
    this.#leases.sortBy(column, descending ?? turned)
    this.showOrder()
    this.#actions.repaint()
  }

  showOrder(): void {
    for (const header of this.#root.querySelectorAll<HTMLElement>('[data-column]')) {
      const sorted = header.dataset['column'] === this.#leases.column
      const direction = this.#leases.descending ? 'descending' : 'ascending'
      if (sorted) header.setAttribute('aria-sort', direction)
      else header.removeAttribute('aria-sort')
    }
  }

  /** The height of a row is the style sheet's to say: it differs on a phone. */
  measure(): void {
    const heightPx = Number.parseFloat(getComputedStyle(this.#root).getPropertyValue('--row'))
    if (heightPx === this.#heightPx) return
    this.#heightPx = heightPx
    this.#lengthPx = -1
    for (const row of this.#rows) row.moved()
  }

  /** Puts the rows that are in view to their places and paints them. */
  show(nowMs: number): void {
    const view = this.#leases.view()
    this.#resize(view.length)
    this.#follow(view)
    const [first, last] = this.#range(view.length)
    const wanted = view.slice(first, last)
    const free = this.#rows.filter(({ lease }) => lease === undefined || !wanted.includes(lease))
    const kept = new Map(this.#rows.filter((row) => !free.includes(row)).map((row) => [row.lease, row]))
    const rows = wanted.map((lease, offset) => {
      const row = kept.get(lease) ?? free.pop() ?? this.#make()
      row.place(lease, first + offset, this.#heightPx)
      return row
    })
    for (const row of free) row.root.remove()
    this.#rows = rows
    this.tick(nowMs)
    const chosen = rows.find(({ lease }) => lease?.key === this.#chosen)
    if (chosen === undefined) this.#root.removeAttribute('aria-activedescendant')
    else if (this.#root.getAttribute('aria-activedescendant') !== chosen.root.id)
      this.#root.setAttribute('aria-activedescendant', chosen.root.id)
  }

  /** Time goes on: only what the rows in view say differs. */
  tick(nowMs: number): void {
    for (const row of this.#rows) {
      const key = row.lease?.key
      row.paint(nowMs, key === this.#chosen, key === this.opened)
    }
  }

  #make(): Row {
    const row = new Row(`row-${this.#made++}`)
    this.#body.append(row.root)
    return row
  }

  #resize(length: number): void {
    const lengthPx = length * this.#heightPx
    if (lengthPx === this.#lengthPx) return
    this.#lengthPx = lengthPx
    this.#body.style.setProperty('height', `${lengthPx}px`)
    this.#root.setAttribute('aria-rowcount', String(length + 1))
  }

  #range(length: number): [first: number, last: number] {
    const { top } = this.#body.getBoundingClientRect()
    const first = Math.floor(-top / this.#heightPx) - OVERSCAN
    const last = Math.ceil((innerHeight - top) / this.#heightPx) + OVERSCAN
    const within = (index: number): number => Math.min(length, Math.max(0, index))
    return [within(first), within(last)]
  }

  /** The chosen lease may have moved, or be gone: then the one that took its place is the chosen one. */
  #follow(view: readonly ShownLease[]): void {
    if (view[this.#chosenIndex]?.key === this.#chosen) return
    const index = view.findIndex(({ key }) => key === this.#chosen)
    this.#chosenIndex = index >= 0 ? index : Math.max(0, Math.min(this.#chosenIndex, view.length - 1))
    this.#chosen = view[this.#chosenIndex]?.key
  }

  #choose(index: number): void {
    const view = this.#leases.view()
    this.#chosenIndex = Math.max(0, Math.min(index, view.length - 1))
    this.#chosen = view[this.#chosenIndex]?.key
    this.#reveal()
    this.#actions.repaint()
  }

  /** Scrolls as little as needed; the headings that stay at the top must not cover the row. */
  #reveal(): void {
    const { top } = this.#body.getBoundingClientRect()
    const rowTop = top + this.#chosenIndex * this.#heightPx
    const covered = this.#covered()
    if (rowTop < covered) scrollBy(0, rowTop - covered)
    else if (rowTop + this.#heightPx > innerHeight) scrollBy(0, rowTop + this.#heightPx - innerHeight)
  }

  #covered(): number {
    const style = getComputedStyle(this.#root)
    return Number.parseFloat(style.getPropertyValue('--covered'))
  }

  #key(event: KeyboardEvent): void {
    if (event.target !== this.#root || event.ctrlKey || event.metaKey || event.altKey) return
    const page = Math.max(1, Math.floor((innerHeight - this.#covered()) / this.#heightPx) - 1)
    const steps: Record<string, number> = {
      ArrowDown: this.#chosenIndex + 1,
      ArrowUp: this.#chosenIndex - 1,
      PageDown: this.#chosenIndex + page,
      PageUp: this.#chosenIndex - page,
      Home: 0,
      End: Number.MAX_SAFE_INTEGER,
    }
    const step = steps[event.key]
    if (step !== undefined) this.#choose(step)
    else if (this.#chosen === undefined) return
    else if (event.key === 'Enter' || event.key === ' ') this.#actions.open(this.#chosen)
    else if (event.key === 'h') this.#actions.filterBy(this.#leases.get(this.#chosen)?.holder ?? '')
    else return
    event.preventDefault()
  }

  #click({ target }: MouseEvent): void {
    if (!(target instanceof Element)) return
    const root = target.closest('.row')
    const lease = this.#rows.find((row) => row.root === root)?.lease
    if (lease === undefined) return
    this.#chosenIndex = this.#leases.view().indexOf(lease)
    this.#chosen = lease.key
    if (target.closest('.holder bdi') !== null) this.#actions.filterBy(lease.holder)
    else this.#actions.open(lease.key)
  }
}

/** For phones, which show no headings: the same orders, as a list to pick from. */
export function fillOrders(select: HTMLSelectElement, grid: Grid): void {
  const orders: readonly (readonly [Column, boolean, string])[] = [
    ['resource', false, 'Name'],
    ['holder', false, 'Holder'],
    ['left', false, 'Ends first'],
    ['held', true, 'Held longest'],
    ['waiters', true, 'Most waiting'],
    ['token', true, 'Newest token'],
  ]
  for (const [column, , text] of orders) select.append(element('option', { value: column }, text))
  select.addEventListener('change', () => {
    const chosen = orders.find(([column]) => column === select.value)
    if (chosen !== undefined) grid.sort(chosen[0], chosen[1])
  })
}
