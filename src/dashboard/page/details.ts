import type { Hello, HistoryEntry, LineRow } from '../protocol.ts'
import { askHistory, reason } from './answers.ts'
import { nowMs } from './clock.ts'
import { bdi, element, find, setText } from './dom.ts'
import { duration, sentence, spelt } from './format.ts'
import { fractionLeft, type ShownLease, type Leases } from './leases.ts'
import { Life } from './life.ts'
import { Bar, heldText, leftText, tokenText } from './row.ts'
import { RunList } from './runs.ts'
import { SAID } from './said.ts'
import { Why } from './why.ts'

export interface DetailActions {
  close(): void
  filterBy(holder: string): void
  release(lease: ShownLease): void
  extend(lease: ShownLease): void
}

/** Renewals, and how long nothing was heard, change without any news of the lease. */
const EVERY_MS = 3_000

function kindOf({ offered, shared }: ShownLease): string {
  if (offered) return 'an offer to the first in line, who has not taken it yet'
  return shared ? 'shared' : 'exclusive'
}

/** One resource: who has it, for how long, what happened to it, and what may be done about it. */
export class Details {
  readonly #leases: Leases
  readonly #root = find('details', HTMLElement)
  readonly #name = find('details-name', HTMLElement)
  readonly #spelt = find('details-spelt', HTMLElement)
  readonly #free = find('details-free', HTMLElement)
  readonly #facts = find('details-facts', HTMLElement)
  readonly #tools = find('details-tools', HTMLElement)
  readonly #writes = find('details-writes', HTMLElement)
  readonly #line = find('line', HTMLElement)
  readonly #lineBox = find('line-box', HTMLElement)
  readonly #history = find('history', HTMLElement)
  readonly #historyNote = find('history-note', HTMLElement)
  readonly #runs = new RunList()
  readonly #why = new Why()
  readonly #life = new Life()
  readonly #bar = new Bar()
  readonly #values: Record<'holder' | 'note' | 'kind' | 'owner' | 'token' | 'held' | 'left' | 'waiters', HTMLElement>
  #ages: (readonly [target: HTMLElement, atMs: number])[] = []
  #waits: (readonly [target: HTMLElement, sinceMs: number])[] = []
  #dueMs = 0
  #asking = false
  #askAgain = false
  #key = ''
  resource: string | undefined

  constructor(leases: Leases, actions: DetailActions) {
    this.#leases = leases
    this.#values = {
      holder: this.#fact('Holder', 'wide'),
      note: this.#fact('Note', 'wide'),
      left: this.#fact('Time left'),
      held: this.#fact('Held for'),
      token: this.#fact('Token', 'code'),
      waiters: this.#fact('Waiting'),
      kind: this.#fact('Kind'),
      owner: this.#fact('Owner', 'wide code'),
    }
    this.#values.left.after(this.#bar.root)
    const current = (): ShownLease | undefined => this.#leases.get(this.#key)
    const on = (id: string, run: (lease: ShownLease) => void): void =>
      find(id, HTMLButtonElement).addEventListener('click', () => {
        const lease = current()
        if (lease !== undefined) run(lease)
      })
    on('only-holder', ({ holder }) => actions.filterBy(holder))
    on('release', (lease) => actions.release(lease))
    on('extend', (lease) => actions.extend(lease))
    find('close', HTMLButtonElement).addEventListener('click', () => actions.close())
  }

  get isOpen(): boolean {
    return this.resource !== undefined
  }

  /** `isSought`: for its runs, by somebody who typed its name. */
  open(key: string, isSought = false): void {
    const resource = this.#leases.get(key)?.resource ?? key
    const other = this.resource !== resource
    this.#key = key
    this.resource = resource
    this.#root.hidden = false
    document.body.classList.add('with-details')
    setText(this.#name, resource)
    const clear = spelt(resource)
    this.#spelt.hidden = clear === undefined
    setText(this.#spelt, clear ?? '')
    if (other) {
      this.#history.replaceChildren()
      this.#ages = []
      this.#showLine([])
      this.#life.show([])
      this.#why.show([])
      this.#root.scrollTop = 0
    }
    this.show(nowMs())
    this.#runs.open(resource, isSought)
    this.refresh()
    find('close', HTMLButtonElement).focus()
  }

  close(): void {
    this.resource = undefined
    this.#runs.close()
    this.#root.hidden = true
    document.body.classList.remove('with-details')
  }

  /** Those who may only read see no button that would do more. */
  allow({ may, runs }: Hello): void {
    this.#writes.hidden = may !== 'write'
    this.#runs.allow(runs)
  }

  /** Asks what happened. While an answer is under way, a further question is remembered, once. */
  refresh(): void {
    if (this.resource === undefined) return
    this.#runs.refresh()
    if (this.#asking) {
      this.#askAgain = true
      return
    }
    void this.#ask(this.resource)
  }

  async #ask(resource: string): Promise<void> {
    this.#asking = true
    this.#dueMs = Infinity
    try {
      const { entries, line, lives, why } = await askHistory(resource)
      if (resource === this.resource) {
        this.#why.show(why)
        this.#showLine(line)
        this.#life.show(lives)
        this.#list(entries)
      }
    } catch (error) {
      if (resource === this.resource) this.#note(sentence(`the history could not be loaded: ${reason(error)}`))
    }
    this.#asking = false
    this.#dueMs = nowMs() + EVERY_MS
    if (!this.#askAgain) return
    this.#askAgain = false
    this.refresh()
  }

  #showLine(line: readonly LineRow[]): void {
    const now = nowMs()
    this.#lineBox.hidden = line.length === 0
    this.#waits = []
    this.#line.replaceChildren(
      ...line.map(({ label, owner, waitedMs }) => {
        const age = element('span', { class: 'age' })
        if (waitedMs !== null) this.#waits.push([age, now - waitedMs])
        return element('li', {}, bdi(label ?? owner, { class: 'who', title: owner }), age)
      }),
    )
    this.tick(now)
  }

  #list(entries: readonly HistoryEntry[]): void {
    const now = nowMs()
    this.#note(entries.length === 0 ? 'Nothing seen since the dashboard’s server started.' : '')
    this.#ages = []
    this.#history.replaceChildren(
      ...entries.map(({ type, label, owner, token, agoMs }) => {
        const age = element('span', { class: 'age' })
        this.#ages.push([age, now - agoMs])
        return element(
          'li',
          { 'data-type': type.replace(' ', '-') },
          element('span', { class: 'what' }, SAID[type] ?? type),
          age,
          bdi(label ?? owner, { class: 'who', title: owner }),
          element('span', { class: 'token' }, token),
        )
      }),
    )
    this.tick(now)
  }

  #note(text: string): void {
    this.#historyNote.hidden = text === ''
    setText(this.#historyNote, text)
  }

  /** Shows what is known of the lease now. */
  show(now: number): void {
    if (this.resource === undefined) return
    const lease = this.#leases.get(this.#key)
    this.#free.hidden = lease !== undefined
    if (lease === undefined) {
      const isHeld = this.#leases.isHeld(this.resource)
      setText(this.#free, isHeld ? 'Over: it is held by others now.' : 'Free: nobody holds it now.')
    }
    this.#facts.hidden = lease === undefined
    this.#tools.hidden = lease === undefined || lease.offered
    if (lease !== undefined) {
      setText(this.#values.holder, lease.offered ? `nobody: offered to ${lease.holder}` : lease.holder)
      setText(this.#values.note, lease.note ?? '–')
      setText(this.#values.owner, lease.owner)
      setText(this.#values.token, tokenText(lease))
      setText(this.#values.kind, kindOf(lease))
      setText(this.#values.waiters, lease.waiters === null ? 'not known' : String(lease.waiters))
    }
    this.tick(now)
  }

  tick(now: number): void {
    if (this.resource === undefined) return
    this.#runs.tick(now)
    if (now >= this.#dueMs) void this.#ask(this.resource)
    const lease = this.#leases.get(this.#key)
    if (lease !== undefined) {
      setText(this.#values.held, heldText(lease, now))
      setText(this.#values.left, leftText(lease, now))
      this.#bar.show(fractionLeft(lease, now))
    }
    for (const [target, atMs] of this.#ages) setText(target, `${duration(now - atMs)} ago`)
    for (const [target, sinceMs] of this.#waits) setText(target, `for ${duration(now - sinceMs)}`)
  }

  #fact(title: string, kind = ''): HTMLElement {
    const value = element('bdi')
    this.#facts.append(element('div', { class: kind }, element('dt', {}, title), element('dd', {}, value)))
    return value
  }
}
