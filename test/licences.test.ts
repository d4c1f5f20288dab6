import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'

const root = path.resolve(import.meta.dirname, '..')
const read = (file: string): unknown => JSON.parse(readFileSync(path.join(root, file), 'utf8'))

interface Locked {
  readonly version?: string
  readonly license?: string
  readonly integrity?: string
  readonly dev?: boolean
  readonly hasInstallScript?: boolean
}

interface Installed {
  readonly name: string
  readonly version: string
  readonly license?: string | { readonly type: string }
  readonly licenses?: readonly { readonly type: string }[]
  readonly scripts?: Readonly<Record<string, string>>
  readonly dependencies?: object
  readonly optionalDependencies?: object
  readonly bundleDependencies?: unknown
}

/** That may be used to build and to test. None of it is in the package. */
const LICENCES = ['0BSD', 'Apache-2.0', 'BlueOak-1.0.0', 'BSD-2-Clause', 'BSD-3-Clause', 'CC-BY-4.0', 'CC0-1.0', 'ISC']
  .concat(['MIT', 'Unlicense'])
  // Of single files: what only uses them keeps its own.
  .concat(['LGPL-2.1-or-later', 'MPL-2.0'])

/** Its package.json says UNLICENSED, and the licence beside it is MIT. */
const BY_FILE = ['@sesamecare-oss/redlock']

/** They fetch or check what is compiled for this machine. All others run no code before somebody calls them. */
const SCRIPTS = ['esbuild', 'msgpackr-extract', 'protobufjs']

const { packages } = read('package-lock.json') as { packages: Readonly<Record<string, Locked>> }
const locked = Object.entries(packages).filter(([place]) => place !== '')
const installed = locked
  .filter(([place]) => existsSync(path.join(root, place, 'package.json')))
  .map(([place]) => ({ place, manifest: read(`${place}/package.json`) as Installed }))

/** As npm did it before there was one way. */
function licenceOf({ name, license, licenses }: Installed, place: string): string {
  if (BY_FILE.includes(name))
    return /\bMIT\b/.exec(readFileSync(path.join(root, place, 'LICENSE.md'), 'utf8'))?.[0] ?? 'none'
  if (license !== undefined) return typeof license === 'string' ? license : license.type
  return licenses?.map(({ type }) => type).join(' OR ') ?? 'none'
}

/** Of `(A OR B)`, one is enough. */
function isAllowed(licence: string): boolean {
  return licence
    .replaceAll(/[()]/g, '')
    .split(' OR ')
    .some((one) => LICENCES.includes(one))
}

test('a licence is allowed by name, or as one of a choice', () => {
  expect(['MIT', '(MIT OR GPL-3.0)'].map((licence) => isAllowed(licence))).toEqual([true, true])
  expect(['GPL-3.0', 'UNLICENSED', 'none', 'MIT AND GPL-3.0', ''].map((licence) => isAllowed(licence))).toEqual([
    false,
    false,
    false,
    false,
    false,
  ])
})

test('the package brings nothing along: no dependency, and of peers none that must be there', () => {
  const own = read('package.json') as Installed & {
    peerDependencies: object
    peerDependenciesMeta: Readonly<Record<string, { optional: boolean }>>
  }
  expect([own.dependencies, own.optionalDependencies, own.bundleDependencies]).toEqual([
    undefined,
    undefined,
    undefined,
  ])
  const peers = Object.keys(own.peerDependencies)
  expect(peers.filter((peer) => own.peerDependenciesMeta[peer]?.optional !== true)).toEqual([])
  expect(Object.keys(own.scripts ?? {}).filter((name) => /^(pre|post)?install$|^prepare$/.test(name))).toEqual([])
})

test('every dependency of the development is pinned by its hash', () => {
  expect(locked.length).toBeGreaterThan(300)
  expect(locked.filter(([, { dev }]) => dev !== true).map(([place]) => place)).toEqual([])
  expect(locked.filter(([, { integrity }]) => !integrity?.startsWith('sha512-')).map(([place]) => place)).toEqual([])
})

test('every dependency has a licence that is allowed', () => {
  const listed = locked.flatMap(([place, { license }]) =>
    // What is installed on this machine is read below, where older ways to name a licence are known.
    license === undefined || isAllowed(license) || BY_FILE.some((name) => place.endsWith(`node_modules/${name}`))
      ? []
      : [`${place}: ${license}`],
  )
  expect(listed).toEqual([])
  const said = installed.map(({ place, manifest }) => ({ place, licence: licenceOf(manifest, place) }))
  expect(said.length).toBeGreaterThan(300)
  expect(said.filter(({ licence }) => !isAllowed(licence))).toEqual([])
})

test('only these run a script when they are installed', () => {
  const asLocked = locked.filter(([, { hasInstallScript }]) => hasInstallScript === true).map(([place]) => place)
  const asInstalled = installed
    .filter(
      ({ place, manifest: { scripts = {} } }) =>
        ['preinstall', 'install', 'postinstall'].some((name) => name in scripts) ||
        // npm compiles without being told to.
        existsSync(path.join(root, place, 'binding.gyp')),
    )
    .map(({ place }) => place)
  const names = [...asLocked, ...asInstalled].map((place) => place.split('node_modules/').at(-1)!)
  expect([...new Set(names)].sort()).toEqual(SCRIPTS)
})
