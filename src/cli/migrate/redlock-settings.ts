import type { Node, Syntax } from './syntax.ts'

/** Of redlock, as far as they matter to us. */
export interface RetrySettings {
  readonly driftFactor: number
  readonly retryCount: number
  readonly retryDelay: number
}

const DEFAULTS: RetrySettings = { driftFactor: 0.01, retryCount: 10, retryDelay: 200 }
/** Renewal happens at a third of the ttl, and waiters are woken: nothing takes their place. */
const DROPPED = new Set(['retryJitter', 'automaticExtensionThreshold'])

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
    const key = property['key'] as Node | undefined
    const name = String(key?.['name'] ?? key?.['value'])
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
