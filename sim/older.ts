import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Library } from './library.ts'

/** Its scripts differ from today's, and its API has all that the workload calls. */
const OLDER = 'd505523'

/** All of it that runs in a process of the simulator. */
const PARTS = [':(glob)src/*.ts', 'src/engines/redis', 'src/engines/shared']
const ENTRY = `export { createLocks } from './src/index.ts'
export { redis, redlock } from './src/engines/redis/index.ts'
export * as scripts from './src/engines/redis/scripts.ts'
`

let isThere: boolean | undefined
let loading: Promise<Library> | undefined

/** Whether the history of this checkout has it. That of a shallow clone has not, and all processes have today's library there. */
export function hasOlder(): boolean {
  return (isThere ??= spawnSync('git', ['cat-file', '-e', `${OLDER}^{commit}`]).status === 0)
}

/** The library as it was at that commit, from the history of this checkout: made once, and kept. */
export function olderLibrary(): Promise<Library> {
  return (loading ??= load())
}

async function load(): Promise<Library> {
  const folder = path.resolve('node_modules/.cache/ringfence')
  const file = path.join(folder, `${OLDER}.mjs`)
  if (!existsSync(file)) await make(folder, file)
  return (await import(/* @vite-ignore */ pathToFileURL(file).href)) as Library
}

/** Several processes may do so at once: the last one puts the same there again. */
async function make(folder: string, file: string): Promise<void> {
  mkdirSync(folder, { recursive: true })
  const work = mkdtempSync(path.join(folder, 'making-'))
  const archive = execFileSync('git', ['archive', OLDER, '--', ...PARTS], { maxBuffer: 2 ** 26 })
  execFileSync('tar', ['-x', '-C', work], { input: archive })
  const entry = path.join(work, 'entry.ts')
  writeFileSync(entry, ENTRY)
  const { rolldown } = await import('rolldown')
  const bundle = await rolldown({ input: entry, platform: 'node', transform: { target: 'node20.19' } })
  const made = path.join(work, 'library.mjs')
  await bundle.write({ file: made, format: 'esm' })
  await bundle.close()
  renameSync(made, file)
  rmSync(work, { recursive: true })
}
