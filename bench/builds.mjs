import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

/**
 * ringfence as it is imported, or another build of it.
 *
 * @param {string} [from] a checkout with a dist of its own; 'src' means the TypeScript of this one; without it, the package
 * @returns {Promise<{ createLocks: Function, redis: Function, redlock: Function }>}
 */
export async function loadRingfence(from) {
  if (from === 'src') {
    // Node 20 does not read TypeScript.
    const { runnerImport } = await import('vite')
    return (
      await runnerImport(path.join(import.meta.dirname, 'source.ts'), { configFile: false, oxc: { target: 'es2022' } })
    ).module
  }
  const [core, engine] =
    from === undefined
      ? [await import('ringfence'), await import('ringfence/redis')]
      : [await import(entry(from, '.')), await import(entry(from, './redis'))]
  return { createLocks: core.createLocks, redis: engine.redis, redlock: engine.redlock }
}

/** Where the package in that folder says that an import of it leads. */
function entry(folder, name) {
  const { exports } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'))
  return pathToFileURL(path.join(folder, exports[name].default)).href
}

/** Of what is measured; a working copy with changes is not that commit, and says so. */
export function commitOf(folder, ...paths) {
  const git = (...args) => execFileSync('git', args, { cwd: folder, encoding: 'utf8' }).trim()
  const changed = git('status', '--porcelain', '--', ...paths) !== ''
  return `${git('rev-parse', '--short=7', 'HEAD')}${changed ? ' with changes' : ''}`
}
