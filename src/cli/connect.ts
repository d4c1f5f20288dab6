import type { Engine } from '../index.ts'
import { ENGINE_URLS } from './commands.ts'
import { usage } from './exit-codes.ts'
import { redacted } from './settings.ts'

/** An engine with the clients that we opened for it. */
export interface Connection {
  readonly engine: Engine
  /** As it may be shown. */
  readonly url: string
  /** What a client of ours last complained about, for an error that does not say. */
  readonly trouble: () => string | undefined
  /** After the engine was closed. */
  readonly close: () => void | Promise<void>
}

/** Each engine and each driver is loaded when its URL is used, and not before. */
export async function connect(url: string | undefined): Promise<Connection> {
  if (url === undefined || url.startsWith('file:')) return (await import('./connect-file.ts')).connectFile(url)
  const scheme = /^([a-z][a-z0-9+]*):/i.exec(url)?.[1]?.toLowerCase()
  switch (scheme) {
    case 'redis':
    case 'rediss':
    case 'valkey':
    case 'valkeys':
      return (await import('./connect-redis.ts')).connectRedis(url)
    default: {
      const known = ENGINE_URLS.map(([example]) => example.replace(/:.*/, '')).join(', ')
      throw usage(
        `--engine: expected a URL with one of ${[...new Set(known.split(', '))].join(', ')}, got ${redacted(url)}`,
        'ringfence --help lists the URLs',
      )
    }
  }
}
