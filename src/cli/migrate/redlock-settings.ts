import type { Node, Syntax } from './syntax.ts'

/** Of redlock, as far as they matter to us. */
export interface RetrySettings {
  readonly driftFactor: number
  readonly retryCount: number
  readonly retryDelay: number
}

const DEFAULTS: RetrySettings = { driftFactor: 0.01, retryCount: 10, retryDelay: 200 }
/** What nothing takes the place of, and why. */
const DROPPED: ReadonlyMap<string, string> = new Map([
  ['retryJitter', 'waiters are woken by a release'],
  ['automaticExtensionThreshold', 'renewal is at a third of the ttl'],
])

/** Where settings stand that are left out. */
export function droppedFrom(node: Node | undefined): { readonly node: Node; readonly text: string }[] {
  const properties = node?.type === 'ObjectExpression' ? (node['properties'] as Node[]) : []
  return properties.flatMap((property) => {
    const name = nameIn(property)
    const why = DROPPED.get(name)
    return why === undefined ? [] : [{ node: property, text: `${name} is left out: ${why}` }]
  })
}

function nameIn(property: Node): string {
  const key = property['key'] as Node | undefined
  return String(key?.['name'] ?? key?.['value'])
}

/** What an object of settings says; undefined if that cannot be read from the text. */
export function settingsOf(
  syntax: Syntax,
  node: Node | undefined,
  defaults: RetrySettings = DEFAULTS,
): RetrySettings | undefined {
  if (node === undefined) return defaults
  if (node.type !== 'ObjectExpression') return undefined
  const settings: Record<string, number> = { ...defaults }
  for (const property of node['properties'] as Node[]) {
    const name = nameIn(property)
    if (DROPPED.has(name)) continue
    const isPlain = property.type === 'ObjectProperty' && property['computed'] !== true && name in DEFAULTS
    const value = isPlain ? syntax.numberOf(property['value'] as Node) : undefined
    if (value === undefined) return undefined
    settings[name] = value
  }
  return settings as unknown as RetrySettings
}

/** How long redlock goes on trying, as text; undefined for retries that take no time. */
export function waitOf({ retryCount, retryDelay }: RetrySettings): string | undefined {
  if (retryCount < 0) return 'Infinity'
  const ms = retryCount * retryDelay
  return ms > 0 || retryCount === 0 ? String(ms) : undefined
}
