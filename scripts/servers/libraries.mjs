import { existsSync, lstatSync, readFileSync, readdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs'
import path from 'node:path'
import { run } from './run.mjs'

const libraryPackage = /^(lib|zlib|lua-)/

/**
 * Adds the library packages that the programs are linked against and the machine lacks. Goes one level of
 * dependencies at a time and stops as soon as the dynamic linker is content, so that a package's maintenance scripts
 * and optional parts do not drag their own dependencies in. `libraries` are taken as dependencies of the programs
 * that no package declares.
 */
export async function completeLibraries(apt, { root, label, programs, packages, libraries = [], without, loader }) {
  const seen = new Set(packages)
  let undeclared = libraries
  for (let level = packages; ;) {
    const missing = await missingLibraries(root, programs, loader)
    if (missing.length === 0) return
    level = [...undeclared, ...(await apt.dependencies(level))].filter(
      (name) => libraryPackage.test(name) && !without?.test(name) && !seen.has(name),
    )
    undeclared = []
    if (level.length === 0) throw new Error(`no package provides ${missing.join(', ')}`)
    for (const name of level) seen.add(name)
    const wanted = level.filter((name) => !apt.isInstalled(name))
    if (wanted.length > 0) await apt.extract(wanted, root, label)
  }
}

/** LD_LIBRARY_PATH for the programs of one server, or nothing when the machine has all that they need. */
export function libraryEnvironment(root) {
  const folders = libraryFolders(root)
  return folders.length > 0 ? { LD_LIBRARY_PATH: folders.join(':') } : {}
}

export function libraryFolders(root) {
  return ['usr/lib', 'lib']
    .map((base) => path.join(root, base))
    .flatMap((base) => folders(base).filter((folder) => /-linux-gnu/.test(path.basename(folder))))
    .flatMap((triplet) => [
      ...holding(/\.so(\.|$)/, [triplet]),
      // Parts that a library keeps for itself (PulseAudio does), known to it by their place on an installed system.
      ...holding(/^lib.*\.so(\.|$)/, folders(triplet)),
    ])
}

function folders(base) {
  if (!existsSync(base)) return []
  return readdirSync(base, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => path.join(base, entry.name))
}

function holding(pattern, candidates) {
  return candidates.filter((folder) => readdirSync(folder).some((name) => pattern.test(name)))
}

async function missingLibraries(root, programs, loader) {
  const missing = new Set()
  for (const program of programs) {
    if (!isElf(program)) continue
    for (const match of (await linkedTo(root, program, loader)).matchAll(
      /(\S+) => not found|(version \S+ not found)/g,
    )) {
      missing.add(match[1] ?? match[2])
    }
  }
  return [...missing]
}

/** What the dynamic linker says. It fails for static programs, which miss nothing, and where a version is missing. */
async function linkedTo(root, program, loader) {
  const question = loader
    ? ['env', 'LD_TRACE_LOADED_OBJECTS=1', loader, '--library-path', libraryFolders(root).join(':'), program]
    : ['ldd', program]
  const env = loader ? {} : libraryEnvironment(root)
  const { stdout } = await run('sh', ['-c', '"$@" 2>&1 || true', 'sh', ...question], { env })
  return stdout
}

export function isElf(file) {
  return readFileSync(file).subarray(0, 4).toString('latin1') === '\u007fELF'
}

/** Packages link to absolute paths (Java's settings in /etc); inside the extracted tree those must stay inside. */
export function keepLinksInside(root) {
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isSymbolicLink()) continue
    const link = path.join(entry.parentPath ?? entry.path, entry.name)
    const target = readlinkSync(link)
    if (!path.isAbsolute(target) || !existsInTree(path.join(root, target))) continue
    rmSync(link)
    symlinkSync(path.relative(path.dirname(link), path.join(root, target)), link)
  }
}

function existsInTree(file) {
  return lstatSync(file, { throwIfNoEntry: false }) !== undefined
}
