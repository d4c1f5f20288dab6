import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
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
  exports: Record<string, string | { default: string; require?: undefined } | { require: { default: string } }>
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

/** What a user writes behind `from`. */
const modules = Object.keys(manifest.exports)
  .filter((name) => name !== './package.json')
  .map((name) => `ringfence${name.slice(1)}`)

const script = (text: string): Promise<string> => run(project, process.execPath, '--input-type=module', '-e', text)

test('the package of a fresh clone has every entry point, and each can be imported', async () => {
  const imports = modules.map((name) => `await import('${name}')`)
  expect(await script(`${imports.join('\n')}\nconsole.log('all', ${imports.length})`)).toBe(`all ${modules.length}\n`)
  expect(modules.length).toBeGreaterThan(10)
})

const dist = path.join(project, 'node_modules/ringfence/dist')

/** The files of dist/ that Node loads for an import of these modules, and the modules of Node that they name. */
async function loadedFor(...names: string[]): Promise<{ files: string[]; builtIn: string[]; bytes: number }> {
  const imports = names.map((name) => `await import('${name}')`).join('\n')
  const print = 'console.log(Object.keys(createRequire(import.meta.url).cache).join("\\n"))'
  const loaded = (await script(`import { createRequire } from 'node:module'\n${imports}\n${print}`)).trim().split('\n')
  const own = loaded.filter((file) => file.startsWith(dist))
  const code = own.map((file) => readFileSync(file, 'utf8')).join('\n')
  const builtIn = new Set(
    [...code.matchAll(/^let \w+ = require\("(node:[\w/]+)"\);$|\bbuiltin\?\.\("(node:[\w/]+)"\)/gm)].map(
      ([, required, asked]) => required ?? asked!,
    ),
  )
  const files = own.map((file) => path.relative(dist, file))
  return { files: files.sort(), builtIn: [...builtIn].sort(), bytes: code.length }
}

test('ringfence and ringfence/redis are five files, and load little of Node', async () => {
  const { files, builtIn, bytes } = await loadedFor('ringfence', 'ringfence/redis')
  const chunks = ['chunks/core.cjs', 'chunks/redis-client.cjs', 'chunks/redis.cjs']
  expect(files).toEqual([...chunks, 'engines/redis/index.cjs', 'index.cjs'])
  expect(builtIn).toEqual(['node:async_hooks', 'node:crypto', 'node:events', 'node:os'])
  expect(bytes).toBeLessThan(385_000)
})

test('random bytes and hashes wait until there is a lease: node:crypto takes milliseconds', async () => {
  const load = `require('ringfence'); require('ringfence/redis')`
  const print = `console.log(process.moduleLoadList.filter((name) => name === 'NativeModule crypto'))`
  const file = path.join(project, 'load.cjs')
  writeFileSync(file, `${load}\n${print}\n`)
  expect(await run(project, process.execPath, file)).toBe('[]\n')
})

test.each(modules)('%s is a few files: a small one of its own, and chunks', async (name) => {
  const { files } = await loadedFor(name)
  const [own, ...others] = files.filter((file) => !file.startsWith('chunks/'))
  expect(own).toMatch(/^((engines\/)?\w+\/)?(index|memory)\.cjs$/)
  expect(others).toEqual([])
  // Node 20 reads all of it, slowly, to find the exported names.
  expect(statSync(path.join(dist, own!)).size).toBeLessThan(2000)
  // The guards know five stores.
  expect(files.length).toBeLessThanOrEqual(name === 'ringfence/guard' ? 9 : 5)
})

test('run on the embedded engine is six files of ours, and a question for the version four', async () => {
  const list = path.join(folder, 'list.cjs')
  const print = 'process.on("exit", () => console.log(Object.keys(require.cache).join("\\n")))'
  writeFileSync(list, print)
  const loaded = async (...args: string[]): Promise<string[]> => {
    const shown = await run(project, process.execPath, '--require', list, path.join(dist, 'cli/main.cjs'), ...args)
    const files = shown.split('\n').filter((file) => file.startsWith(dist))
    return files.map((file) => path.relative(path.join(dist, 'cli'), file)).sort()
  }
  const start = ['chunks/command.cjs', 'chunks/core.cjs', 'main.cjs']
  expect(await loaded('--version')).toEqual([...start, 'help.cjs'].sort())
  const besides = ['chunks/child.cjs', 'commands/run.cjs', 'engines/file.cjs']
  expect(await loaded('run', 'files', '--', 'true')).toEqual([...start, ...besides].sort())
})

test('an error is the same class for all entry points', async () => {
  const namespaces = modules.map((name) => `['${name}', await import('${name}')]`)
  const found = await script(`
    const classes = new Map()
    for (const [name, exported] of [${namespaces.join(', ')}])
      for (const [key, value] of Object.entries(exported))
        if (value.prototype instanceof Error) {
          const known = classes.get(key) ?? { value, in: [] }
          if (known.value !== value || value.name !== key) throw new Error(key + ' of ' + name)
          classes.set(key, { value, in: [...known.in, name] })
        }
    const { EngineError } = await import('ringfence')
    const { consul } = await import('ringfence/consul')
    const request = { resources: ['x'], owner: 'me', ttlMs: 20000 }
    const error = await consul('http://127.0.0.1:1').acquire(request).catch((error) => error)
    console.log(error instanceof EngineError, classes.get('StaleTokenError').in.join(' '))
  `)
  expect(found).toBe('true ringfence ringfence/guard\n')
})

test('required and imported, an entry point is the same: its names, its classes, and what it remembers', async () => {
  const shown = await script(`
    import assert from 'node:assert'
    import { createRequire } from 'node:module'
    const require = createRequire(import.meta.url)
    for (const name of ${JSON.stringify(modules)}) {
      const { default: whole, 'module.exports': same, ...names } = await import(name)
      const { default: main, ...required } = require(name)
      assert.deepEqual(Object.entries(names).sort(), Object.entries(required).sort())
      assert.equal(whole, main ?? require(name))
    }
    const imported = await import('ringfence')
    const required = require('ringfence')
    const { memory } = await import('ringfence/memory')
    const locks = imported.createLocks(memory())
    await locks.using('x', { reentrant: true }, async (outer) => {
      // Who is inside of whom is known to the core, and there is one of it.
      const inner = await locks.acquire('x', { reentrant: true })
      assert.equal(inner.token, outer.token)
      await inner.release()
      await assert.rejects(locks.acquire('x', { wait: 0 }), required.HeldError)
    })
    await locks.close()
    // So is which engines have locks.
    const engine = require('ringfence/memory').memory()
    await imported.createLocks(engine).close()
    assert.throws(() => required.createLocks(engine), /given to createLocks before/)
    console.log('same')
  `)
  expect(shown).toBe('same\n')
})

test('where Node does not load ES modules by require, every entry point can be required', async () => {
  const text = `for (const name of ${JSON.stringify(modules)}) require(name)\nconsole.log('all')`
  expect(await run(project, process.execPath, '--no-experimental-require-module', '-e', text)).toBe('all\n')
})

test('Jest runs a test of code that requires ringfence, with a file and in memory', async () => {
  const own = path.join(project, 'jest')
  mkdirSync(own)
  writeFileSync(path.join(own, 'package.json'), '{ "type": "commonjs" }')
  writeFileSync(
    path.join(own, 'locks.test.js'),
    `const { createLocks, HeldError } = require('ringfence')
    const { file } = require('ringfence/file')
    const { testLocks } = require('ringfence/testing')
    test('held in a file', async () => {
      const locks = createLocks(file(__dirname + '/locks.db'))
      await locks.using('x', async (lease) => {
        expect(lease.signal).toBeInstanceOf(AbortSignal)
        await expect(locks.acquire('x', { wait: 0 })).rejects.toThrow(HeldError)
      })
      await locks.close()
    })
    test('held in memory, by a clock of the test', async () => {
      const { locks } = testLocks()
      const lease = await locks.acquire('x')
      expect(lease.token).toBe(1n)
      await locks.close()
    })
    test('every entry point', () => {
      for (const name of ${JSON.stringify(modules)}) expect(Object.keys(require(name))).not.toEqual([])
      expect(() => createLocks(1)).toThrow(TypeError)
    })`,
  )
  const jest = path.join(ROOT, 'node_modules/jest/bin/jest.js')
  const args = [jest, '--rootDir', own, '--runInBand', '--no-watchman', '--no-cache', '--json']
  const result = JSON.parse(await run(own, process.execPath, ...args)) as { numPassedTests: number }
  expect(result.numPassedTests).toBe(3)
})

const entries = new Set(
  Object.values(manifest.exports).flatMap((target) => {
    if (typeof target === 'string') return []
    return [path.relative('dist', target.require === undefined ? target.default : target.require.default)]
  }),
)

interface SourceMap {
  readonly sources: readonly string[]
  readonly sourcesContent?: readonly string[]
}

test('a source map leads from every file to the sources, which are in it for those who import the package', () => {
  const files = readdirSync(dist, { recursive: true, encoding: 'utf8' })
  // What package.json names has nothing but exports, and so nothing to lead from.
  const built = files.filter((file) => file.endsWith('.cjs') && !entries.has(file))
  const sources = new Set<string>()
  for (const file of built) {
    expect(readFileSync(path.join(dist, file), 'utf8')).toContain(`//# sourceMappingURL=${path.basename(file)}.map`)
    const map = JSON.parse(readFileSync(path.join(dist, `${file}.map`), 'utf8')) as SourceMap
    const paths = map.sources.map((source) => path.join(clone, 'dist', path.dirname(file), source))
    expect(paths.filter((source) => !existsSync(source))).toEqual([])
    const texts = file.startsWith('cli/') ? undefined : paths.map((source) => readFileSync(source, 'utf8'))
    expect(map.sourcesContent).toEqual(texts)
    for (const source of paths) sources.add(path.relative(clone, source))
  }
  expect(sources).toContain('src/keeper.ts')
  expect(sources).toContain('src/cli/child/watchdog.ts')
})

test('with source maps, a stack trace names the sources', async () => {
  const args = ['--enable-source-maps', '--input-type=module', '-e']
  const text = `const { createLocks } = await import('ringfence')
    try { createLocks(1) } catch ({ stack }) { console.log(stack) }`
  expect(await run(project, process.execPath, ...args, text)).toMatch(/src\/locks\.ts:\d+:\d+/)
})

/** The compiler of attw: `node10` is not in TypeScript 7 any more. */
const OLDER = createRequire(createRequire(import.meta.url).resolve('@arethetypeswrong/core')).resolve(
  'typescript/bin/tsc',
)
const NEWEST = path.join(ROOT, 'node_modules/typescript/bin/tsc')

test.each([
  ['TypeScript 7, nodenext', NEWEST, ['types.mts', 'types.cts'], ['--module', 'nodenext']],
  ['TypeScript 5, node16', OLDER, ['types.mts', 'types.cts'], ['--module', 'node16']],
  ['TypeScript 5, node10', OLDER, ['types.ts'], ['--module', 'commonjs', '--moduleResolution', 'node10']],
])('%s finds the types of every entry point', async (_what, compiler, files, options) => {
  const imports = modules.map((name, index) => `import * as m${index} from '${name}'`)
  const use = `import { createLocks, type Locks } from 'ringfence'
    import { memory } from 'ringfence/memory'
    export const locks: Locks = createLocks(memory())
    // @ts-expect-error: an engine is an object
    createLocks(1)
    export const all = [${modules.map((_name, index) => `m${index}`).join(', ')}]`
  for (const file of files) writeFileSync(path.join(project, file), `${imports.join('\n')}\n${use}\n`)
  // Without skipLibCheck: the types of the package itself are checked too.
  const common = ['--noEmit', '--strict', '--target', 'es2022', '--lib', 'es2023,esnext.disposable']
  const types = ['--typeRoots', path.join(ROOT, 'node_modules/@types'), '--types', 'node']
  await run(project, process.execPath, compiler, ...common, ...options, ...types, ...files)
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
