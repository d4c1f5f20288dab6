import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Options } from '../../../src/cli/command-line.ts'
import { readConfig, type Config } from '../../../src/cli/config.ts'
import { Output } from '../../../src/cli/output.ts'
import { engineUrl, explain, setting, storeUrl } from '../../../src/cli/settings.ts'

let folder: string
let system: string
const output = new Output({ json: false, quiet: true })
const none = new Options({})

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'ringfence-config-'))
  mkdirSync(join(folder, 'ringfence'))
  system = join(folder, 'system.json')
  vi.stubEnv('XDG_CONFIG_HOME', folder)
  vi.stubEnv('RINGFENCE_URL', undefined)
})

afterEach(() => {
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
  rmSync(folder, { recursive: true })
})

function read(files: { user?: object; system?: object }, options = none): Config {
  if (files.user !== undefined) write(join(folder, 'ringfence', 'config.json'), files.user)
  if (files.system !== undefined) write(system, files.system)
  return readConfig(options, output, system)
}

function write(path: string, content: object): void {
  writeFileSync(path, JSON.stringify(content))
  chmodSync(path, 0o644)
}

test('each setting comes from the first file that has it: one with a ttl alone does not hide the engine of the machine', () => {
  const config = read({ user: { ttl: '10s' }, system: { engine: 'redis://a', ttl: '20s', wait: '1m' } })
  expect(setting('ttl', none, config)).toEqual({
    text: '10s',
    source: `ttl, in ${join(folder, 'ringfence', 'config.json')}`,
  })
  expect(setting('wait', none, config)).toEqual({ text: '1m', source: `wait, in ${system}` })
  expect(engineUrl(none, config, output)).toEqual({ text: 'redis://a', source: `engine, in ${system}` })
})

test('the engine of a nearer file counts, also where that names a file and the other a URL', () => {
  write(join(folder, 'url'), {})
  writeFileSync(join(folder, 'url'), 'redis://nearer\n')
  const config = read({ user: { engineFile: '../url' }, system: { engine: 'redis://a' } })
  expect(engineUrl(none, config, output)).toEqual({ text: 'redis://nearer', source: join(folder, 'url') })
})

test.each([
  ['a variable', { RINGFENCE_REQUIRE_ENGINE: '1' }, {}, /RINGFENCE_REQUIRE_ENGINE/],
  ['the file of the machine', {}, { requireEngine: true }, /requireEngine, in .*system\.json/],
])('without an engine there is no local lock where %s forbids it', (_what, env, content, source) => {
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
  const config = read({ system: content })
  expect(() => engineUrl(none, config, output)).toThrow(/no engine is named, and a lock of this machine alone/)
  expect(() => engineUrl(none, config, output)).toThrow(source)
  const local = new Options({ engine: 'file:/x' })
  expect(engineUrl(local, config, output)?.text).toBe('file:/x')
})

test('the variable decides before the files, and must be understood', () => {
  const config = read({ system: { requireEngine: true } })
  vi.stubEnv('RINGFENCE_REQUIRE_ENGINE', '0')
  expect(engineUrl(none, config, output)).toBe(undefined)
  vi.stubEnv('RINGFENCE_REQUIRE_ENGINE', 'perhaps')
  expect(() => engineUrl(none, config, output)).toThrow("RINGFENCE_REQUIRE_ENGINE: expected 1 or 0, got 'perhaps'")
  expect(() => read({ system: { requireEngine: 'yes' } })).toThrow(/requireEngine: expected true or false, got 'yes'/)
})

test('a file that every user may write to is not obeyed', () => {
  read({ system: { engine: 'redis://a' } })
  chmodSync(system, 0o646)
  expect(() => read({})).toThrow(`${system} is not obeyed: every user may write to it`)
  const named = new Options({ config: system })
  expect(engineUrl(none, read({}, named), output)?.text).toBe('redis://a')
  vi.stubEnv('RINGFENCE_URL', 'redis://b')
  expect(engineUrl(none, read({}), output)?.text).toBe('redis://b')
})

test.skipIf(process.getuid!() !== 0)('nor one that another group may write to, or that belongs to another user', () => {
  read({ user: { engine: 'redis://a' } })
  const path = join(folder, 'ringfence', 'config.json')
  chmodSync(path, 0o664)
  expect(read({}).paths).toEqual([path])
  chownSync(path, 0, 65_534)
  expect(() => read({})).toThrow(`${path} is not obeyed: the group 65534 may write to it`)
  chmodSync(path, 0o644)
  chownSync(path, 65_534, 65_534)
  expect(() => read({})).toThrow(`${path} is not obeyed: it belongs to the user 65534`)
})

test('--verbose tells of each setting where it came from, without the passwords in URLs', () => {
  const said: string[] = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0)
  const verbose = new Output({ json: false, quiet: false, verbose: true })
  const told = (given: Record<string, string>, files: { user?: object; system?: object }): string[] => {
    const options = new Options(given)
    const config = read(files)
    said.length = 0
    explain(options, config, verbose)
    engineUrl(options, config, verbose)
    storeUrl(options, config, verbose)
    return said.map((line) => line.replaceAll(folder, 'HOME'))
  }
  vi.stubEnv('RINGFENCE_STORE', 'postgres://u:hush@db/app')
  const user = { ttl: '10s', wait: '1m', requireEngine: false }
  const machine = { ttl: '20s', grace: '2s', label: 'web-1', engine: 'redis://:hush@a', requireEngine: true }
  expect(told({ wait: '5s', label: 'me' }, { user, system: machine })).toEqual([
    'ringfence: config files: HOME/ringfence/config.json, HOME/system.json\n',
    'ringfence: ttl: 10s, from ttl, in HOME/ringfence/config.json\n',
    'ringfence: wait: 5s, from --wait\n',
    'ringfence: grace: 2s, from grace, in HOME/system.json\n',
    'ringfence: label: me, from --label\n',
    'ringfence: requireEngine: false, from requireEngine, in HOME/ringfence/config.json\n',
    'ringfence: engine: redis://:***@a, from engine, in HOME/system.json\n',
    'ringfence: store: postgres://u:***@db/app, from RINGFENCE_STORE\n',
  ])
  rmSync(join(folder, 'system.json'))
  rmSync(join(folder, 'ringfence', 'config.json'))
  vi.stubEnv('RINGFENCE_STORE', undefined)
  vi.stubEnv('RINGFENCE_REQUIRE_ENGINE', '0')
  expect(told({}, {})).toEqual([
    'ringfence: no config file\n',
    'ringfence: requireEngine: 0, from RINGFENCE_REQUIRE_ENGINE\n',
    'ringfence: engine: a file of this machine, the default: no option, variable or config file names one\n',
  ])
})
