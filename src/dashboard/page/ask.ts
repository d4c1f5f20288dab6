import type { Hello } from '../protocol.ts'
import { askExtend, askRelease, reason } from './answers.ts'
import { nowMs } from './clock.ts'
import { bdi, find, setText } from './dom.ts'
import { duration, parseDuration, plainDuration, sentence } from './format.ts'
import type { ShownLease } from './leases.ts'

/** What an extension begins with: the first that is not shorter than what the holder counts on. */
const PROPOSALS = ['10s', '30s', '1m', '2m', '5m', '10m', '30m', '1h', '3h', '1d']

interface Confirmation {
  readonly title: string
  readonly meaning: string
  readonly confirm: string
  readonly dangerous: boolean
  /** Does it and says what came of it. */
  act(): Promise<string>
}

/** Asks before it does something to somebody else's lease, and tells what came of it in the same place. */
export class Ask {
  readonly #dialog = find('ask', HTMLDialogElement)
  readonly #title = find('ask-title', HTMLElement)
  readonly #whose = find('ask-whose', HTMLElement)
  readonly #meaning = find('ask-meaning', HTMLElement)
  readonly #field = find('ask-field', HTMLElement)
  readonly #input = find('ask-ttl', HTMLInputElement)
  readonly #result = find('ask-result', HTMLElement)
  readonly #cancel = find('ask-cancel', HTMLButtonElement)
  readonly #confirm = find('ask-confirm', HTMLButtonElement)
  readonly #done: () => void
  #question: Confirmation | undefined
  #limits: Hello['limits'] | undefined

  constructor(done: () => void) {
    this.#done = done
    this.#cancel.addEventListener('click', () => this.#dialog.close())
    this.#dialog.addEventListener('close', () => {
      // The event comes a moment after the dialog was closed; by then the next question may be open.
      if (!this.#dialog.open) this.#question = undefined
    })
    this.#dialog.querySelector('form')?.addEventListener('submit', (event) => {
      event.preventDefault()
      if (this.#question !== undefined) void this.#act(this.#question)
    })
  }

  get isOpen(): boolean {
    return this.#dialog.open
  }

  limit(limits: Hello['limits']): void {
    this.#limits = limits
  }

  release(lease: ShownLease): void {
    // The token of now: should somebody else have it by the time of the answer, that one is left alone.
    const { resource, token, owner } = lease
    this.#open(lease, {
      title: 'Release this lease?',
      meaning:
        'Its holder is not asked. It learns of it when it next renews, and may go on working until then; only a store that checks tokens keeps its writes out.',
      confirm: 'Release',
      dangerous: true,
      act: async () => {
        const { ours } = await askRelease({ resource, token, owner })
        return ours ? 'Released.' : 'Nothing to release: this lease was over already.'
      },
    })
  }

  extend(lease: ShownLease): void {
    const { resource, token, owner } = lease
    const leastMs = lease.ttlMs ?? 0
    this.#input.value = PROPOSALS.find((text) => (parseDuration(text) ?? 0) >= leastMs) ?? plainDuration(leastMs)
    this.#open(lease, {
      title: 'Extend this lease?',
      meaning:
        'The lease will end after this time, counted from now. A holder that renews it sets its own time again with its next renewal.',
      confirm: 'Extend',
      dangerous: false,
      act: async () => {
        const ttlMs = this.#ttl()
        const { held } = await askExtend({ resource, token, owner, ttlMs })
        return held ? `Extended: it ends in ${duration(ttlMs)}.` : 'Not extended: this lease was over already.'
      },
    })
  }

  #ttl(): number {
    const ttlMs = parseDuration(this.#input.value)
    if (ttlMs === undefined) throw new TypeError('write a time such as 30s, 5m or 1h')
    const { minTtlMs, maxTtlMs } = this.#limits ?? { minTtlMs: 0, maxTtlMs: Number.MAX_SAFE_INTEGER }
    if (ttlMs >= minTtlMs && ttlMs <= maxTtlMs) return ttlMs
    throw new RangeError(`this engine takes ${duration(minTtlMs, true)} to ${duration(maxTtlMs)}`)
  }

  #open(lease: ShownLease, question: Confirmation): void {
    this.#question = question
    setText(this.#title, question.title)
    this.#whose.replaceChildren(
      bdi(lease.resource, { class: 'name' }),
      lease.shared ? ' is shared by ' : ' is held by ',
      bdi(lease.holder, { class: 'name' }),
      ` for ${duration(nowMs() - lease.heldSinceMs)}, with token ${lease.token}.`,
    )
    setText(this.#meaning, question.meaning)
    this.#field.hidden = question.dangerous
    this.#confirm.classList.toggle('danger', question.dangerous)
    setText(this.#confirm, question.confirm)
    setText(this.#cancel, 'Cancel')
    this.#say('', '')
    this.#confirm.hidden = false
    this.#confirm.disabled = false
    this.#dialog.showModal()
    // On what does no harm, should somebody hold down Enter.
    if (question.dangerous) this.#cancel.focus()
    else this.#input.select()
  }

  async #act(question: Confirmation): Promise<void> {
    this.#confirm.disabled = true
    this.#say('', 'Asking …')
    try {
      const said = await question.act()
      if (question !== this.#question) return
      this.#say('done', said)
      this.#confirm.hidden = true
      this.#field.hidden = true
      setText(this.#cancel, 'Close')
      this.#cancel.focus()
    } catch (error) {
      if (question !== this.#question) return
      this.#say('failed', sentence(reason(error)))
      this.#confirm.disabled = false
    } finally {
      this.#done()
    }
  }

  #say(kind: string, text: string): void {
    this.#result.dataset['kind'] = kind
    setText(this.#result, text)
  }
}
