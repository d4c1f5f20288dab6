import type { EngineRow } from '../protocol.ts'
import { element, find } from './dom.ts'
import { plural } from './format.ts'

/** By what the server calls each engine. A link stays the same element: it may have the focus. */
const links = new Map<string, HTMLAnchorElement>()

/** The engines of this dashboard, each with how it is. Each is a page of its own, so that its address can be kept. */
export function showEngines(engines: readonly EngineRow[], current: string): void {
  const nav = find('engines', HTMLElement)
  nav.hidden = engines.length < 2
  for (const [key, link] of links) {
    if (engines.some((row) => row.key === key)) continue
    link.remove()
    links.delete(key)
  }
  for (const { key, leases, severity, says } of engines) {
    const link = links.get(key) ?? element('a', { href: `./?${new URLSearchParams({ engine: key }).toString()}` })
    if (!links.has(key)) nav.append(link)
    links.set(key, link)
    link.dataset['severity'] = severity ?? 'unknown'
    if (key === current) link.setAttribute('aria-current', 'page')
    link.replaceChildren(
      element('b', {}, key),
      ` ${plural(leases, 'lease')}`,
      ...(says === '' ? [] : [' ', element('span', { class: 'says' }, says)]),
    )
  }
}
