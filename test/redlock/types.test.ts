import { execFile } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const folder = createFolder('redlock-types')
afterAll(() => removeFolder(folder))

/** What programs with redlock 5 write, in one file. */
const PROGRAM = `
import { Redis } from 'ioredis'
import Redlock, { ExecutionError, Lock, ResourceLockedError } from 'redlock'
import type { ClientExecutionResult, ExecutionResult, ExecutionStats, RedlockAbortSignal, Settings } from 'redlock'

const settings: Partial<Settings> = { driftFactor: 0.01, retryCount: -1, retryDelay: 200, retryJitter: 100 }
const clients = [new Redis(), new Redis(), new Redis()]
const redlock: Redlock = new Redlock(clients, { ...settings, automaticExtensionThreshold: 500 })
redlock.on('error', (error) => {
  if (error instanceof ResourceLockedError) return
  console.error(error)
})

export class Orders {
  readonly #locks: Redlock
  constructor(locks: Redlock) {
    this.#locks = locks
  }

  async charge(id: string): Promise<number> {
    let lock: Lock = await this.#locks.acquire([id], 5000, { retryCount: 0 })
    lock = await lock.extend(5000)
    lock = await this.#locks.extend(lock, 5000)
    const left: number = lock.expiration - Date.now()
    const name: string = lock.resources[0]! + lock.value
    const result: ExecutionResult = await lock.release()
    const stats: ExecutionStats = await result.attempts[0]!
    return left + name.length + stats.votesFor.size + [...stats.votesAgainst.values()].length
  }

  report(id: string): Promise<string> {
    return this.#locks.using([id], 5000, async (signal: RedlockAbortSignal) => {
      if (signal.aborted) throw signal.error
      return 'done'
    })
  }

  quickly(id: string): Promise<number> {
    return this.#locks.using([id], 5000, settings, async () => 1)
  }
}

export async function reason(orders: Orders): Promise<readonly Promise<ExecutionStats>[]> {
  try {
    await orders.charge('a')
    return []
  } catch (error) {
    if (error instanceof ExecutionError) return error.attempts
    throw error
  }
}

export function vote(result: ClientExecutionResult): number | Error {
  return result.vote === 'for' ? result.value : result.error
}

await redlock.quit()
`

/** What programs with redlock 4 and its `@types/redlock` write. */
const PROGRAM_4 = `
import { Redis } from 'ioredis'
import Redlock from 'redlock'

const options: Redlock.Options = { driftFactor: 0.01, retryCount: 3, retryDelay: 200 }
const redlock = new Redlock([new Redis()], options)
const onUnlock: Redlock.Callback<void> = (error) => console.error(error)

export async function charge(id: string): Promise<string> {
  const lock: Redlock.Lock = await redlock.lock(id, 5000)
  const extended: Redlock.Lock = await lock.extend(5000)
  await redlock.extend(extended, 5000)
  await redlock.release(extended, onUnlock)
  return extended.value
}

export function attempts(error: unknown): number {
  const failure: Redlock.LockError | undefined = error instanceof Redlock.LockError ? error : undefined
  return failure?.attempts ?? 0
}
`

async function compile(name: string, types: string, program = PROGRAM): Promise<string> {
  const project = path.join(folder, name)
  mkdirSync(project)
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(project, 'node_modules'))
  writeFileSync(path.join(project, 'package.json'), '{ "type": "module" }')
  writeFileSync(path.join(project, 'program.ts'), program)
  const compilerOptions = {
    target: 'es2022',
    module: 'nodenext',
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
    types: ['node'],
    lib: ['es2023', 'esnext.disposable'],
    // Where a package that says so would have its types.
    paths: { redlock: [path.join(ROOT, types)] },
  }
  writeFileSync(path.join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['program.ts'] }))
  const compiler = path.join(ROOT, 'node_modules/.bin/tsc')
  const run = promisify(execFile)(compiler, ['-p', project], { cwd: project })
  const { stdout } = await run.catch((error: { stdout: string }) => error)
  return stdout
}

test.each([
  ['redlock', 'node_modules/redlock/dist/index.d.ts'],
  ['ringfence/redlock', 'dist/redlock/index.d.ts'],
])('a program compiles with the types of %s, and only its import differs', async (name, types) => {
  expect(await compile(name.replace('/', '-'), types)).toBe('')
})

test('a program with the types of redlock 4 compiles: its lock is Redlock.Lock', async () => {
  expect(await compile('redlock-4', 'dist/redlock/index.d.ts', PROGRAM_4)).toBe('')
})
