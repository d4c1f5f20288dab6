import type { Attributes } from '@opentelemetry/api'

export type Classify = (name: string) => string

/**
 * What all measurements of a lease or a call have in common. Never the names of its resources: each would make time series
 * of its own, and names may tell about customers.
 */
export function commonAttributes(engine: string, resources: readonly string[], classify?: Classify): Attributes {
  const common = { 'ringfence.engine': engine }
  return classify === undefined ? common : { ...common, 'ringfence.resource': classOf(resources, classify) }
}

/** The classes of the resources, each once. Usually one. */
export function classOf(resources: readonly string[], classify: Classify): string {
  if (resources.length === 1) return classify(resources[0]!)
  return [...new Set(resources.map((resource) => classify(resource)))].sort().join(',')
}

/** The code of an error, or else the name of its class: few different values. */
export function errorType(error: unknown): string {
  if (!(error instanceof Error)) return '_OTHER'
  const code: unknown = Reflect.get(error, 'code')
  return typeof code === 'string' && code !== '' ? code : error.name
}

/** The message of an error without the names of the resources. Longer names first: one may begin with another. */
export function messageWithout(resources: readonly string[], error: Error): string {
  const names = resources.toSorted((a, b) => b.length - a.length)
  return names.reduce((message, name) => message.replaceAll(name, '…'), error.message)
}
