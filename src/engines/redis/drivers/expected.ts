export const SUPPORTED =
  'an ioredis or iovalkey Redis or Cluster, a node-redis client, pool, cluster or sentinel, a GlideClient or ' +
  'GlideClusterClient, or one of them wrapped by ioredis(), iovalkey(), nodeRedis() or valkeyGlide()'

/** The methods tell one kind of client from another: never a class name, which bundlers shorten. */
export function hasMethods(value: unknown, ...names: readonly string[]): value is object {
  return (
    typeof value === 'object' && value !== null && names.every((name) => typeof property(value, name) === 'function')
  )
}

/** For what a driver keeps but does not declare, or declares differently from version to version. */
export function property(value: unknown, name: string): unknown {
  const holds = (typeof value === 'object' && value !== null) || typeof value === 'function'
  return holds ? Reflect.get(value, name) : undefined
}

/** The same for a string or a number, as text. */
export function text(value: unknown, name: string): string | undefined {
  const found = property(value, name)
  return typeof found === 'string' || typeof found === 'number' ? String(found) : undefined
}

/** Says what came, as precisely as a frequent mistake allows. It never shows a value: a URL may hold a password. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'string') return 'a string: connect first and pass the client, not its URL'
  if (Array.isArray(value)) return 'an array: pass one client (redlock() takes the array of them)'
  if (typeof value === 'function') return 'a function or class: pass an instance'
  if (typeof value !== 'object') return `a ${typeof value}`
  if (hasMethods(value, 'then')) return 'a promise: await it (createClient() of GLIDE, connect() of node-redis) first'
  return MISTAKES.find(({ is }) => is(value))?.text ?? 'an object of another kind'
}

const OPTION_NAMES = [
  'host',
  'port',
  'url',
  'path',
  'socket',
  'rootNodes',
  'sentinels',
  'sentinelRootNodes',
  'addresses',
]

const MISTAKES: readonly { is: (value: object) => boolean; text: string }[] = [
  {
    is: (value) => !hasMethods(value, 'close') && ['exec', 'customCommand'].some((name) => hasMethods(value, name)),
    text: 'a pipeline, multi or batch: pass the client itself',
  },
  {
    is: (value) => hasMethods(value, 'sendCommand', 'multi') && !('isOpen' in value),
    text: "node-redis's old interface: pass the client itself, not what its legacy() returns",
  },
  {
    is: (value) => hasMethods(value, 'sendCommand', 'quit', 'duplicate'),
    text: 'a client that is too old: node-redis is supported from version 5, ioredis from version 5',
  },
  {
    is: (value) => OPTION_NAMES.some((name) => name in value) && !hasMethods(value, 'on'),
    text: 'what looks like options: pass a client made from them',
  },
]
