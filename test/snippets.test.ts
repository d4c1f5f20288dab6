import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const root = path.resolve(import.meta.dirname, '..')
const run = promisify(execFile)

/** What the fragments of a page take for granted. Whole programs are in examples/ and are run instead. */
const GIVEN: Record<string, string> = {
  'README.md': `
    declare const order: object
    declare function charge(order: object, how: { signal: AbortSignal; token: bigint }): Promise<void>`,
  'docs/observability.md': `
    import { Pool } from 'pg'
    import { createLocks } from 'ringfence'
    import { postgresGuard } from 'ringfence/guard'
    import { redlock } from 'ringfence/redis'
    declare const clients: unknown[], pool: Pool`,
  'docs/migrating/README.md': `
    import type { Locks } from 'ringfence'
    declare const locks: Locks
    declare function oldLock(name: string, work: (signal: AbortSignal) => Promise<void>): Promise<void>
    declare function charge(signal: AbortSignal): Promise<void>`,
  'docs/migrating/redlock.md': `
    import { Redis } from 'ioredis'
    declare const a: Redis, b: Redis, c: Redis
    declare function charge(signal: AbortSignal): Promise<void>`,
  'docs/migrating/redis-semaphore.md': `
    import { Redis } from 'ioredis'
    declare const client: Redis
    declare function charge(signal: AbortSignal): Promise<void>`,
  'docs/migrating/verrou.md': `
    import { Redis } from 'ioredis'
    declare const connection: Redis
    declare function charge(signal: AbortSignal): Promise<void>`,
  'docs/migrating/syncguard.md': `
    import { Redis } from 'ioredis'
    declare const client: Redis
    declare function charge(signal: AbortSignal): Promise<void>`,
  'docs/migrating/engines.md': `
    import type { Lease, Locks } from 'ringfence'
    import type { RedisGuard } from 'ringfence/guard'
    declare const before: Locks, after: Locks, guard: RedisGuard
    declare function charge(lease: Lease, signal: AbortSignal): Promise<void>`,
  'docs/fencing.md': `
    import { Pool } from 'pg'
    import type { Lease, Locks } from 'ringfence'
    import { type NodeRequest } from 'ringfence/guard'
    declare const pool: Pool, locks: Locks, lease: Lease, url: string, body: string
    declare const app: { use(middleware: (request: ExpressRequest, response: object, next: () => void) => void): void }
    interface ExpressRequest extends NodeRequest { readonly path: string }`,
  'docs/writing-an-engine.md': `
    import type { LeaseInfo } from 'ringfence'
    interface ShelfServer {
      readonly id: string
      takeAll(resources: readonly string[], owner: string, ttlMs: number): Promise<Taken>
      renewAll(leases: readonly object[]): Promise<boolean[]>
      removeAll(resources: readonly string[], owner: string): Promise<boolean>
      list(resource?: string): AsyncIterable<LeaseInfo>
      pingMs(): Promise<number>
    }
    interface Taken { readonly token?: bigint; readonly holder: string; readonly remainingMs: number }
    declare function connect(): ShelfServer
    declare function test(name: string, run: () => Promise<void>): void`,
}

const ENTRIES = {
  ringfence: 'index.ts',
  'ringfence/conformance': 'conformance/index.ts',
  'ringfence/guard': 'guards/index.ts',
  'ringfence/otel': 'otel/index.ts',
  'ringfence/redis': 'engines/redis/index.ts',
}

const compilerOptions = {
  target: 'es2022',
  lib: ['es2023', 'esnext.disposable', 'dom'],
  module: 'nodenext',
  strict: true,
  noEmit: true,
  allowImportingTsExtensions: true,
  skipLibCheck: true,
  types: ['node'],
  paths: Object.fromEntries(Object.entries(ENTRIES).map(([name, file]) => [name, [path.join(root, 'src', file)]])),
}

/** The fragments of a page, without those that quote an example, as one program with what they take for granted. */
async function program(page: string, given: string): Promise<string> {
  const text = await readFile(path.join(root, page), 'utf8')
  const fragments = [...text.matchAll(/(?<!-->\n)```[jt]s\n([\s\S]*?)```/g)].map((match) => match[1]!)
  expect(fragments.length, `fragments in ${page}`).toBeGreaterThan(0)
  const code = fragments.join('\n')
  return `${without(given, imported(code))}\n${code}\nexport {}\n`
}

function imported(code: string): Set<string> {
  const lists = [...code.matchAll(/^import \{ (.*) \}/gm)].map((match) => match[1]!)
  return new Set(lists.flatMap((list) => list.split(', ')))
}

/** A fragment may import for itself what is given. */
function without(given: string, names: ReadonlySet<string>): string {
  return given.replaceAll(/\{ ([^}]*) \} from/g, (_, list: string) => {
    const rest = list.split(', ').filter((name) => !names.has(name))
    return `{ ${rest.join(', ')} } from`
  })
}

test('the fragments of code in the documents compile', async () => {
  const folder = await mkdtemp(path.join(root, 'node_modules/.snippets-'))
  try {
    const files: string[] = []
    for (const [page, given] of Object.entries(GIVEN)) {
      const file = `${page.replaceAll(/\W/g, '-')}.ts`
      await writeFile(path.join(folder, file), await program(page, given))
      files.push(file)
    }
    await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
    const compiled = run(path.join(root, 'node_modules/.bin/tsc'), ['-p', folder]).catch((error: unknown) => error)
    expect(await compiled).toMatchObject({ stdout: '', stderr: '' })
  } finally {
    await rm(folder, { recursive: true })
  }
})
