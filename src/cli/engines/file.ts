import { fileURLToPath } from 'node:url'
import { file } from '../../engines/file/index.ts'
import type { Engine } from '../../index.ts'
import type { Connection } from './connect.ts'
import { usage } from '../exit-codes.ts'

/** `file:/path/locks.db`, or relative as in `file:locks.db`; without a URL, the user's own file. */
export async function connectFile(url?: string): Promise<Connection> {
  const path = url === undefined ? undefined : pathOf(url)
  // What we run outlives us for a moment if we are killed: until the watchdog has noticed. And a busy file is no reason to
  // give up: fifty jobs that cron starts at the same second all get their turn.
  const engine = ownFile(path)
  return { engine, url: url ?? engine.identity, close: () => undefined }
}

function ownFile(path: string | undefined): Engine {
  try {
    return file(path, { deadHolder: 'after ttl', requestTimeout: '10s' })
  } catch (error) {
    if (path !== undefined || !(error instanceof RangeError)) throw error
    const { HOME = '' } = process.env
    throw usage(
      `there is no folder for the file of locks: HOME is ${HOME === '' ? 'empty' : `'${HOME}'`}`,
      'set HOME or XDG_STATE_HOME, or name the file: --engine file:/var/lib/ringfence/locks.db',
    )
  }
}

function pathOf(url: string): string {
  const path = url.startsWith('file://') ? fileURLToPath(url) : decodeURIComponent(url.slice('file:'.length))
  if (path === '') throw usage('--engine: expected file:PATH, got file: without a path')
  return path
}
