import type { WhyLine } from '../protocol.ts'
import { bdi, element, find } from './dom.ts'

/** What the server says to one who waits. A line that stays the same stays the same element: its command may be being copied. */
export class Why {
  readonly #list = find('why', HTMLElement)
  #shown: readonly string[] = []

  show(lines: readonly WhyLine[]): void {
    const shown = lines.map((line) => JSON.stringify(line))
    for (const [index, line] of lines.entries()) {
      const old = this.#list.children[index]
      if (old !== undefined && shown[index] === this.#shown[index]) continue
      const item = element('li', { 'data-kind': line.kind }, ...line.said.map(part))
      if (old === undefined) this.#list.append(item)
      else old.replaceWith(item)
    }
    for (const left of [...this.#list.children].slice(lines.length)) left.remove()
    this.#shown = shown
  }
}

function part(said: WhyLine['said'][number]): Node | string {
  if (typeof said === 'string') return said
  return 'name' in said ? bdi(said.name) : element('code', {}, said.code)
}
