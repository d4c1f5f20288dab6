import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { program } from '../../harness/binaries.ts'

const script = fileURLToPath(new URL('../../scripts/servers.mjs', import.meta.url))
let folder: string

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'ringfence-cache-'))
})

afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(folder, { recursive: true })
})

/** Without a PATH there is neither apt-get nor npm nor a compiler: nothing can be fetched. */
function runOffline(
  args: string[],
  env: NodeJS.ProcessEnv = {},
): Promise<{ code: unknown; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [script, ...args],
      { env: { ...process.env, PATH: '', ...env } },
      (error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }),
    )
  })
}

test('a program that was fetched is found', () => {
  expect(existsSync(program('redis-server').path)).toBe(true)
})

test('a program that was not fetched is missed by its server and the command that fetches it', async () => {
  vi.stubEnv('RINGFENCE_SERVERS', folder)
  vi.resetModules()
  const fresh = await import('../../harness/binaries.ts')
  expect(() => fresh.program('mongod')).toThrow(/mongodb is missing.*npm run servers -- mongodb/)
  expect(fresh.isAvailable('mongodb')).toBe(false)
})

test('what is in the cache is told without fetching anything', async () => {
  const { code, stdout, stderr } = await runOffline(['redis', 'valkey'])
  expect(stdout).toMatch(/^redis \d+\.\d+\S* \/.*\nvalkey \d+\.\d+\S* \/.*\n$/)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
})

test('what cannot be had is listed by name and reason, and nothing is left half done', async () => {
  const { code, stdout } = await runOffline(['etcd', 'clock-shift'], { RINGFENCE_SERVERS: folder })
  expect(stdout).toMatch(/^missing: etcd — .+\nmissing: clock-shift — no C compiler\n$/)
  expect(code).toBe(1)
  expect(readdirSync(folder)).toEqual(['manifest.json'])
})

test('the lock and the remains of an interrupted run do not stop the next one', async () => {
  mkdirSync(path.join(folder, '.lock'))
  mkdirSync(path.join(folder, '.work-1', 'redis'), { recursive: true })
  // Beyond the highest process id that Linux gives out.
  writeFileSync(path.join(folder, '.lock', 'pid'), '4194305')
  await runOffline(['redis'], { RINGFENCE_SERVERS: folder })
  expect(readdirSync(folder)).toEqual(['manifest.json'])
})

test('an unknown server is refused', async () => {
  const { code, stderr } = await runOffline(['oracle'])
  expect(stderr).toContain('unknown server: oracle')
  expect(code).toBe(2)
})
