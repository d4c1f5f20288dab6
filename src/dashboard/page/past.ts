import type { PastRow } from '../protocol.ts'
import { askPast, reason } from './answers.ts'
import { bdi, element, find, setText } from './dom.ts'
import { moment, plural, sentence } from './format.ts'
import { SAID } from './said.ts'

/** The history of all resources, to be searched. */
export class PastSearch {
  readonly #root = find('past', HTMLElement)
  readonly #input = find('past-words', HTMLInputElement)
  readonly #note = find('past-note', HTMLElement)
  readonly #list = find('past-list', HTMLElement)
  readonly #open: (resource: string) => void
  #asked = 0

  constructor(actions: { open(resource: string): void; close(): void }) {
    this.#open = (resource) => actions.open(resource)
    find('past-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault()
      void this.#search()
    })
    find('past-close', HTMLButtonElement).addEventListener('click', () => actions.close())
  }

  get isOpen(): boolean {
    return !this.#root.hidden
  }

  open(words: string): void {
    this.#root.hidden = false
    document.body.classList.add('with-details')
    this.#input.value = words
    this.#input.focus()
    void this.#search()
  }

  close(): void {
    this.#root.hidden = true
    document.body.classList.remove('with-details')
  }

  async #search(): Promise<void> {
    const asked = ++this.#asked
    setText(this.#note, 'Searching …')
    try {
      const { entries, more, kept, trouble } = await askPast(this.#input.value)
      // Another one was asked for meanwhile.
      if (asked !== this.#asked) return
      this.#list.replaceChildren(...entries.map((row) => this.#entry(row)))
      const said = [`${more ? 'The newest ' : ''}${plural(entries.length, 'entry', 'entries')}.`]
      if (kept === 'in memory') said.push('Kept in memory: it began with the dashboard’s server.')
      if (trouble !== null) said.push(sentence(`the file of the history cannot be written: ${trouble}`))
      setText(this.#note, said.join(' '))
    } catch (error) {
      if (asked === this.#asked) setText(this.#note, sentence(`the history could not be searched: ${reason(error)}`))
    }
  }

  #entry({ resource, atMs, type, owner, label, token }: PastRow): HTMLElement {
    const name = element('button', { type: 'button', class: 'resource' }, bdi(resource))
    name.addEventListener('click', () => this.#open(resource))
    return element(
      'li',
      { 'data-type': type.replace(' ', '-') },
      name,
      element('span', { class: 'age' }, moment(atMs)),
      element('span', { class: 'who' }, `${SAID[type] ?? type}: `, bdi(label ?? owner, { title: owner })),
      element('span', { class: 'token' }, token),
    )
  }
}
