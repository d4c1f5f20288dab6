import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { Redis } from 'ioredis'
import type { RedisServer } from '../harness/servers/redis.ts'
import { until } from '../harness/until.ts'
import { redis } from '../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../src/locks.ts'

const root = path.resolve(import.meta.dirname, '..')

interface Place {
  readonly cwd?: string
  readonly args?: readonly string[]
}

/** Starts a program that goes on until it is told to end. */
export async function running(file: string, env: Record<string, string>, ready: string, place: Place = {}) {
  const { cwd = root, args = [] } = place
  const child = spawn(process.execPath, [file, ...args], {
    cwd,
    env: { ...process.env, ...env, NODE_OPTIONS: '' },
    stdio: 'pipe',
  })
  let output = ''
  let complaints = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (complaints += text))
  const ended = once(child, 'close')
  const result = ([code]: unknown[]): { code: unknown; output: string } => ({ code, output: output + complaints })
  const end = async (): Promise<{ code: unknown; output: string }> => {
    child.kill('SIGTERM')
    return ended.then(result)
  }
  const early = ended.then(() => Promise.reject(new Error(`${file} has ended: ${complaints}`)))
  await Promise.race([until(() => output.includes(ready), { what: `${file} says '${ready}'` }), early])
  early.catch(() => undefined)
  const kill = async (): Promise<void> => void (child.kill('SIGKILL') && (await ended))
  return { pid: child.pid!, ended: ended.then(result), end, [Symbol.asyncDispose]: kill }
}

interface Others extends AsyncDisposable {
  readonly client: Redis
  readonly locks: Locks
}

/** The locks of another process than the one that is tested. */
export function othersOn(server: RedisServer): Others {
  const client = new Redis(server.url)
  client.on('error', () => undefined)
  const locks = createLocks(redis(client), { wait: 0 })
  const close = async (): Promise<void> => {
    await locks.close()
    client.disconnect()
  }
  return { client, locks, [Symbol.asyncDispose]: close }
}

export async function keysOf(server: RedisServer): Promise<string[]> {
  const keys = (await server.cli('KEYS', '*')).split('\n')
  return keys.filter((key) => key !== '' && !key.startsWith('ringfence:'))
}
