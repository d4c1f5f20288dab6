/** Text goes into the page as text alone: nothing here, or anywhere in the page, parses HTML. */
type Children = readonly (Node | string)[]

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: Children
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

/** A name that someone else chose: isolated, so that marks of direction in it turn nothing else around. */
export function bdi(text: string, attributes: Readonly<Record<string, string>> = {}): HTMLElement {
  return element('bdi', attributes, text)
}

export function find<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.querySelector(`#${id}`)
  if (!(found instanceof type)) throw new Error(`the page has no #${id}`)
  return found
}

/** Writing the same text again would still cost a layout and wake a screen reader. */
export function setText(target: Element, text: string): void {
  if (target.textContent !== text) target.textContent = text
}
