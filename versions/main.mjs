// Runs the tests of engines and guards against other versions of servers and drivers, one after the other, and keeps the
// result of each in results.json, from which `versions/table.mjs` makes the table of docs/versions.md.
//
//   node versions/main.mjs                          all of them, which takes most of an hour
//   node versions/main.mjs redis-8 ioredis@4.31.0   some
//   node versions/main.mjs next                     the example for Next.js in the real one
//   node versions/main.mjs ringfence@d505523        this ringfence beside an older one, on the same servers; keeps no result
//   node versions/main.mjs --fetch                  only fetches what they need
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { serversFolder } from '../scripts/servers/cache-folder.mjs'
import { copyWith, fetchDriver, installedVersion } from './drivers.mjs'
import { drivers, frameworks, olds, servers } from './list.mjs'
import { runBeside } from './old-ringfence.mjs'
import { writeTable } from './table.mjs'

const resultsFile = 'versions/results.json'

/** One run tells about a server and about the drivers where both are those of `npm test`. */
const ordinary = new Map()

process.chdir(path.join(import.meta.dirname, '..'))
main(process.argv.slice(2))

function main(args) {
  const all = [...servers, ...drivers, ...frameworks, ...olds]
  const ids = args.filter((arg) => !arg.startsWith('--'))
  const unknown = ids.filter((id) => !all.some((each) => each.id === id))
  if (unknown.length > 0) {
    process.stderr.write(`unknown: ${unknown.join(', ')} (known: ${all.map(({ id }) => id).join(', ')})\n`)
    process.exitCode = 2
    return
  }
  const wanted = ids.length === 0 ? all : ids.map((id) => all.find((each) => each.id === id))
  fetchAll(wanted)
  if (args.includes('--fetch')) return
  for (const each of wanted) {
    if (each.commit !== undefined) {
      if (!runBeside(each)) process.exitCode = 1
      continue
    }
    const result = each.variable ? runFramework(each) : each.driver ? runDriver(each) : runServer(each)
    keep(each.id, result)
    const { passed, failed, seconds } = result
    process.stdout.write(`${each.id} ${result.version}: ${passed} passed, ${failed.length} failed, ${seconds} s\n`)
    for (const name of failed) process.stdout.write(`  ${name}\n`)
    if (failed.length > 0) process.exitCode = 1
  }
  writeTable()
}

function fetchAll(wanted) {
  const names = new Set(wanted.flatMap((each) => (each.server ? [each.server, ...Object.values(each.use)] : [])))
  if (names.size > 0)
    execFileSync('node', ['scripts/servers.mjs', ...names], { stdio: ['ignore', 'ignore', 'inherit'] })
  for (const each of wanted) if (isElsewhere(each)) fetchDriver(each)
}

/** What the project has installed itself needs no copy. */
function isElsewhere({ driver, version, variable }) {
  return variable !== undefined || (driver !== undefined && installedVersion(driver) !== version)
}

function runServer({ server, use, tests }) {
  const manifest = JSON.parse(readFileSync(path.join(serversFolder(), 'manifest.json'), 'utf8'))
  if (Object.keys(use).length === 0) return { version: manifest[server].version, ...runOrdinary(tests) }
  const env = Object.fromEntries(
    Object.entries(use).map(([name, chosen]) => [`RINGFENCE_USE_${name.toUpperCase()}`, chosen]),
  )
  return { version: manifest[server].version, ...run(tests, { env }) }
}

function runDriver(each) {
  const { version, driver, tests } = each
  if (!isElsewhere(each)) return { version, ...runOrdinary(tests) }
  const cwd = copyWith(driver, fetchDriver(each))
  try {
    return { version, ...run(tests, { cwd }) }
  } finally {
    rmSync(cwd, { recursive: true, force: true })
  }
}

/** The test finds it by a variable: a framework is what an application is made of, and the tests import none of it. */
function runFramework(each) {
  const { version, variable, tests } = each
  return { version, ...run(tests, { env: { [variable]: path.join(fetchDriver(each), '../..') } }) }
}

function runOrdinary(tests) {
  if (!ordinary.has(tests)) ordinary.set(tests, run(tests))
  return ordinary.get(tests)
}

function run(tests, { env = {}, cwd = '.' } = {}) {
  const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-versions-report-'))
  const report = path.join(folder, 'report.json')
  const files = tests.map((name) => `test/${name}.test.ts`)
  const args = ['vitest', 'run', '--reporter=json', `--outputFile=${report}`, ...files]
  const begin = performance.now()
  const { stderr } = spawnSync('npx', args, {
    cwd,
    env: { ...process.env, ...env },
    encoding: 'utf8',
    timeout: 900_000,
  })
  try {
    if (!existsSync(report)) throw new Error(`vitest wrote no report: ${stderr.slice(-2_000)}`)
    return {
      ...summary(JSON.parse(readFileSync(report, 'utf8')), path.resolve(cwd)),
      date: new Date().toISOString().slice(0, 10),
      commit: commit(),
      node: process.versions.node,
      seconds: Math.round((performance.now() - begin) / 1_000),
      tests,
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function summary({ testResults, numPassedTests, numPendingTests }, root) {
  const failed = testResults.flatMap(({ name, status, message, assertionResults }) => {
    const file = path.relative(root, name)
    const tests = assertionResults.filter((test) => test.status === 'failed')
    for (const test of tests)
      process.stderr.write(`${file}: ${test.fullName}\n${test.failureMessages.join('\n').slice(0, 1_500)}\n`)
    if (status === 'failed' && tests.length === 0) {
      process.stderr.write(`${file}: ${message}\n`)
      return [`${file}: ${message.split('\n')[0]}`]
    }
    return tests.map((test) => `${file}: ${test.fullName}`)
  })
  return { passed: numPassedTests, skipped: numPendingTests, failed }
}

/** With a plus sign where files have been changed since. */
function commit() {
  const changed = git('status', '--porcelain', '--', 'src', 'test', 'harness')
  return `${git('rev-parse', '--short', 'HEAD')}${changed === '' ? '' : '+'}`
}

function keep(id, result) {
  const all = existsSync(resultsFile) ? JSON.parse(readFileSync(resultsFile, 'utf8')) : {}
  all[id] = result
  writeFileSync(resultsFile, `${JSON.stringify(all, null, 2)}\n`)
}

function git(...args) {
  return execFileSync('git', args, { encoding: 'utf8' }).trim()
}
