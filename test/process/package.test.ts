import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const folder = createFolder('package')
const clone = path.join(folder, 'clone')
const project = path.join(folder, 'project')
const prefix = path.join(folder, 'global')

/** Everything is in the clone, in the packed file or in our own node_modules: nothing is asked of a registry. */
const OFFLINE = ['--offline', '--no-audit', '--no-fund', '--loglevel=error']

async function run(cwd: string, program: string, ...args: string[]): Promise<string> {
  const { PATH = '' } = process.env
  const { stdout } = await promisify(execFile)(program, args, { cwd, env: { PATH, HOME: folder } })
  return stdout
}

const npm = (cwd: string, ...args: string[]): Promise<string> => run(cwd, 'npm', ...args, ...OFFLINE)

const manifest = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
  version: string
  exports: object
}
const tarball = path.join(clone, `ringfence-${manifest.version}.tgz`)

beforeAll(async () => {
  // What `git clone` gives, with what is not committed yet: no dist folder.
  const files = await run(ROOT, 'git', 'ls-files', '--cached', '--others', '--exclude-standard')
  for (const file of files
    .trim()
    .split('\n')
    .filter((file) => existsSync(path.join(ROOT, file))))
    cpSync(path.join(ROOT, file), path.join(clone, file))
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(clone, 'node_modules'))
  await npm(clone, 'pack')
  mkdirSync(project)
  writeFileSync(path.join(project, 'package.json'), '{ "type": "module" }')
  // With the drivers that its entry points and the embedded engine need on the oldest Node.
  const drivers = ['@opentelemetry/api', 'libsql'].map((name) => path.join(ROOT, 'node_modules', name))
  await npm(project, 'install', tarball, ...drivers)
})
afterAll(() => removeFolder(folder))

test('the package of a fresh clone has every entry point, and each can be imported', async () => {
  const modules = Object.keys(manifest.exports).filter((name) => name !== './package.json')
  const imports = modules.map((name) => `await import('ringfence${name.slice(1)}')`)
  const script = `${imports.join('\n')}\nconsole.log('all', ${imports.length})`
  expect(await run(project, process.execPath, '--input-type=module', '-e', script)).toBe(`all ${modules.length}\n`)
  expect(modules.length).toBeGreaterThan(10)
})

test('the command of the package runs on the embedded engine, and needs nothing of the clone', async () => {
  const ringfence = path.join(project, 'node_modules/.bin/ringfence')
  expect(await run(project, ringfence, '--version')).toBe(`${manifest.version}\n`)
  const shown = await run(project, ringfence, 'run', 'hello', '--', 'sh', '-c', 'echo "$RINGFENCE_RESOURCE"')
  expect(shown).toBe('hello\n')
})

test('installed for everyone, the command and its man page are where a shell and man look', async () => {
  await npm(project, 'install', '--global', '--prefix', prefix, tarball)
  expect(await run(project, path.join(prefix, 'bin/ringfence'), 'help')).toContain('First steps')
  expect(readFileSync(path.join(prefix, 'share/man/man1/ringfence.1'), 'utf8')).toMatch(/^\.TH RINGFENCE 1/)
})

test('npm ci accepts the lock file, and npm install leaves it as it is', async () => {
  const lock = readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8')
  await npm(clone, 'ci', '--dry-run', '--ignore-scripts')
  await npm(clone, 'install', '--package-lock-only', '--ignore-scripts')
  expect(readFileSync(path.join(clone, 'package-lock.json'), 'utf8')).toBe(lock)
  // Whichever registry it was made with, it is good for any other.
  expect(lock).not.toContain('"resolved"')
})

test('npm takes it beside the oldest ioredis that the tests run on, and not beside one that is older', async () => {
  const { version } = JSON.parse(readFileSync(path.join(ROOT, 'node_modules/ioredis4/package.json'), 'utf8')) as {
    version: string
  }
  expect(await installedBeside(version)).toContain(`ioredis@${version}`)
  await expect(installedBeside('4.30.1')).rejects.toThrow('missing: ioredis@')
})

async function installedBeside(ioredis: string): Promise<string> {
  const own = path.join(folder, `beside-${ioredis}`)
  const driver = path.join(folder, `ioredis-${ioredis}`)
  for (const made of [own, driver]) mkdirSync(made)
  writeFileSync(path.join(driver, 'package.json'), JSON.stringify({ name: 'ioredis', version: ioredis }))
  writeFileSync(path.join(own, 'package.json'), '{ "type": "module" }')
  await npm(own, 'install', driver, tarball)
  // Without a registry npm leaves out what does not fit, and says so here.
  return npm(own, 'ls')
}
