import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { serversFolder } from '../scripts/servers/cache-folder.mjs'

/** The version of a driver that `npm test` runs with. */
export function installedVersion(driver) {
  return JSON.parse(readFileSync(path.join('node_modules', driver, 'package.json'), 'utf8')).version
}

/**
 * Installs one version of a driver into the cache, where it stays, with what else it needs, and returns the folder of its
 * package.
 */
export function fetchDriver({ driver, version, beside = [] }) {
  const folder = path.join(path.dirname(serversFolder()), 'drivers', `${driver.replace('/', '+')}@${version}`)
  const found = path.join(folder, 'node_modules', driver)
  const done = path.join(folder, 'done')
  if (existsSync(done)) return found
  mkdirSync(folder, { recursive: true })
  writeFileSync(path.join(folder, 'package.json'), '{ "private": true }\n')
  const { status } = spawnSync('npm', ['install', '--no-audit', '--no-fund', `${driver}@${version}`, ...beside], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  if (status !== 0) throw new Error(`npm install ${driver}@${version} ended with ${status}`)
  writeFileSync(done, '')
  return found
}

/**
 * A copy of this project that has another version of one driver, in a temporary folder: the tests, the processes that
 * they start and the built package all find that one by its ordinary name.
 */
export function copyWith(driver, place) {
  const copy = mkdtempSync(path.join(tmpdir(), 'ringfence-versions-'))
  // Processes of another user, which some tests start, look into it.
  spawnSync('chmod', ['755', copy])
  for (const name of readdirSync('.')) {
    if (!['node_modules', '.git'].includes(name)) cpSync(name, path.join(copy, name), { recursive: true })
  }
  linkAll(path.resolve('node_modules'), path.join(copy, 'node_modules'), {
    [driver]: withLaterNames(copy, driver, place),
  })
  return copy
}

/** What the tests import and earlier versions export by other names. The library imports no driver. */
const laterNames = {
  'ioredis@4': (place) => `import Redis from '${place}/built/index.js'
export { Redis, Redis as default }
export const { Cluster } = Redis
`,
  'pg@8': (place) => `import pg from '${place}/lib/index.js'
export default pg
export const { Client, Pool } = pg
`,
  'redis@5': (place) => `export * from '${place}/dist/index.js'
import client from '${path.dirname(place)}/@redis/client/dist/index.js'
export const { RESP_TYPES, createClientPool } = client
`,
}

function withLaterNames(copy, driver, place) {
  const { version } = JSON.parse(readFileSync(path.join(place, 'package.json'), 'utf8'))
  const text = laterNames[`${driver}@${version.split('.')[0]}`]?.(place)
  if (text === undefined) return place
  const folder = path.join(copy, '.named', driver)
  mkdirSync(folder, { recursive: true })
  writeFileSync(
    path.join(folder, 'package.json'),
    JSON.stringify({ name: driver, version, type: 'module', main: 'index.js' }),
  )
  writeFileSync(path.join(folder, 'index.js'), text)
  return folder
}

/** Links to every package of a folder, but for those that are elsewhere. */
function linkAll(from, to, elsewhere, scope = '') {
  mkdirSync(to)
  for (const name of readdirSync(from)) {
    if (scope === '' && name.startsWith('@')) linkAll(path.join(from, name), path.join(to, name), elsewhere, `${name}/`)
    else if (!name.startsWith('.vite'))
      symlinkSync(elsewhere[scope + name] ?? path.join(from, name), path.join(to, name))
  }
}
