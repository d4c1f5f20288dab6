import { hasMethods, property } from '../../shared/shape.ts'

export const SUPPORTED =
  'an ioredis or iovalkey Redis or Cluster, a node-redis client, pool, cluster or sentinel, a GlideClient or ' +
  'GlideClusterClient, or one of them wrapped by ioredis(), iovalkey(), nodeRedis() or valkeyGlide()'

/** A driver's socket no longer keeps the process alive. Does nothing where the driver has no such method. */
export function unref(socket: unknown): void {
  const method = property(socket, 'unref')
  if (typeof method === 'function') method.call(socket)
}

/** Says what came, and for frequent mistakes what to do. It never shows a value: a URL may contain a password. */
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
    is: (value) => hasMethods(value, 'send', 'duplicate', 'subscribe') && 'bufferedAmount' in value,
    text: "Bun's own RedisClient, which loses its subscriptions with its connection and does not say so: use ioredis, which runs on Bun",
  },
  {
    is: (value) => hasMethods(value, 'createScript', 'pipeline'),
    text:
      'a client over HTTP (such as @upstash/redis), which has no connection to be woken by: use ioredis or node-redis with ' +
      'the rediss:// address of the same database',
  },
  {
    is: (value) =>
      !hasMethods(value, 'close') &&
      !hasMethods(value, 'on') &&
      ['exec', 'customCommand'].some((name) => hasMethods(value, name)),
    text: 'a pipeline, multi or batch: pass the client itself',
  },
  {
    is: (value) =>
      hasMethods(value, 'quit', 'duplicate') && ['sendCommand', 'send_command'].some((name) => hasMethods(value, name)),
    text: 'a client that is too old, or a mock of one: node-redis is supported from version 5, ioredis from 4.31',
  },
  {
    is: (value) => hasMethods(value, 'sendCommand', 'multi') && !('isOpen' in value),
    text: "node-redis's old interface: pass the client itself, not what its legacy() returns",
  },
  {
    is: (value) => hasMethods(value, 'on', 'duplicate', 'pipeline') && !hasMethods(value, 'call'),
    text: 'a mock of ioredis, which cannot run any command by its name: in tests use memory(), or a real server',
  },
  {
    is: (value) => OPTION_NAMES.some((name) => name in value) && !hasMethods(value, 'on'),
    text: 'what looks like options: pass a client made from them',
  },
]
