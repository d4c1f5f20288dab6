import type { RunRow } from '../protocol.ts'
import { askRuns, reason } from './answers.ts'
import { nowMs } from './clock.ts'
import { bdi, element, find, setText } from './dom.ts'
import { duration, milliseconds, moment, sentence } from './format.ts'

/** A run may come and go between two looks at the engine, so that nothing else would say that there is one. */
const EVERY_MS = 5_000

const SAID: Record<RunRow['outcome'], string> = {
  began: 'began, no end recorded',
  done: 'done in',
  failed: 'failed after',
  lost: 'lost its lease after',
}

/** The last runs of the job that has the name of the resource, where the server has a store of them. */
export class RunList {
  readonly #box = find('runs-box', HTMLElement)
  readonly #list = find('runs', HTMLElement)
  readonly #note = find('runs-note', HTMLElement)
  #hasStore = false
  #job: string | undefined
  #isSought = false
  #isAsking = false
  #dueMs = 0
  #shown = ''

  allow(hasStore: boolean): void {
    this.#hasStore = hasStore
    if (!hasStore) this.#show([])
  }

  /** That there are no runs is said only to somebody who looked for some. */
  open(job: string, isSought: boolean): void {
    if (job !== this.#job) this.#show([])
    this.#job = job
    this.#isSought = isSought
  }

  close(): void {
    this.#job = undefined
  }

  refresh(): void {
    this.#dueMs = 0
    this.tick(nowMs())
  }

  tick(now: number): void {
    if (!this.#hasStore || this.#job === undefined || this.#isAsking || now < this.#dueMs) return
    this.#dueMs = Infinity
    void this.#ask(this.#job)
  }

  async #ask(job: string): Promise<void> {
    this.#isAsking = true
    try {
      const { runs } = await askRuns(job)
      if (job === this.#job) this.#show(runs, this.#isSought && runs.length === 0 ? 'No run is recorded.' : '')
    } catch (error) {
      // What was known stays on show.
      if (job === this.#job) this.#say(sentence(`the runs could not be loaded: ${reason(error)}`))
    }
    this.#isAsking = false
    this.#dueMs = Math.min(this.#dueMs, nowMs() + EVERY_MS)
  }

  #show(runs: readonly RunRow[], note = ''): void {
    const shown = JSON.stringify(runs)
    if (shown !== this.#shown) this.#list.replaceChildren(...runs.map(entry))
    this.#shown = shown
    this.#say(note)
  }

  #say(note: string): void {
    this.#note.hidden = note === ''
    setText(this.#note, note)
    this.#box.hidden = note === '' && this.#list.childElementCount === 0
  }
}

function entry({ atMs, tookMs, outcome, message, owner, label, token }: RunRow): HTMLElement {
  const said = SAID[outcome] ?? outcome
  const took = tookMs === null ? '' : ` ${tookMs < 1000 ? milliseconds(tookMs) : duration(tookMs, true)}`
  return element(
    'li',
    { 'data-type': outcome },
    element('span', { class: 'what' }, `${said}${took}`),
    element('span', { class: 'age' }, moment(atMs)),
    bdi(label ?? owner, { class: 'who', title: owner }),
    element('span', { class: 'token' }, token),
    ...(message === null ? [] : [bdi(message, { class: 'message' })]),
  )
}
