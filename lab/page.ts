// eslint-disable-next-line typescript/no-unnecessary-type-parameters -- the page has it, and of that kind
export function by<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T
}

export function made<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text = '',
  more: Partial<HTMLElementTagNameMap[K]> = {},
): HTMLElementTagNameMap[K] {
  return Object.assign(document.createElement(tag), { textContent: text }, more)
}

export function item(...children: Node[]): HTMLLIElement {
  const li = made('li')
  li.append(...children)
  return li
}

/** Puts others in place of what is in a box. What had the focus has it again, by its value: it goes on by keyboard. */
export function refill(box: HTMLElement, ...children: Node[]): void {
  const { activeElement } = document
  const value = box.contains(activeElement) ? activeElement?.getAttribute('value') : null
  box.replaceChildren(...children)
  if (typeof value === 'string')
    box.querySelector<HTMLElement>(`[value="${CSS.escape(value)}"]`)?.focus({ preventScroll: true })
}
