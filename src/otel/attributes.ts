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

/** Mostly one; the classes of a lease over several kinds of resources, each once. */
export function classOf(resources: readonly string[], classify: Classify): string {
  if (resources.length === 1) return classify(resources[0]!)
  return [...new Set(resources.map((resource) => classify(resource)))].sort().join(',')
}

/** Few different values: a code where there is one, else the name of the class. */
export function errorType(error: unknown): string {
  if (!(error instanceof Error)) return '_OTHER'
  const code: unknown = Reflect.get(error, 'code')
  return typeof code === 'string' && code !== '' ? code : error.name
}

/** An error's message with the resources' names taken out, of two that begin alike the longer one first. */
export function messageWithout(resources: readonly string[], error: Error): string {
  const names = resources.toSorted((a, b) => b.length - a.length)
  return names.reduce((message, name) => message.replaceAll(name, '…'), error.message)
}
