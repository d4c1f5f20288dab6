import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { entryFile, replaceFolder } from './fetch.mjs'
import { progress, run } from './run.mjs'

const clockShiftSource = new URL('../../harness/faults/clock-shift.c', import.meta.url).pathname

/** Compiles the preload library that shifts one server's clock. */
export async function buildClockShift({ work, target, recipeHash }) {
  const compiler = await findCompiler()
  const root = path.join(work, 'clock-shift')
  mkdirSync(root, { recursive: true })
  const library = path.join(root, 'clock-shift.so')
  progress('clock-shift: compiling')
  await run(compiler, ['-shared', '-fPIC', '-O2', '-Wall', '-o', library, clockShiftSource])
  const entry = {
    recipeHash,
    bin: {},
    env: {},
    library: '{root}/clock-shift.so',
    version: recipeHash.slice(0, 8),
  }
  writeFileSync(path.join(root, entryFile), JSON.stringify(entry, null, 2))
  replaceFolder(root, target)
}

export function clockShiftRecipe() {
  return readFileSync(clockShiftSource, 'utf8')
}

async function findCompiler() {
  for (const compiler of ['cc', 'gcc', 'clang']) {
    try {
      await run(compiler, ['--version'])
      return compiler
    } catch {
      // Not this one.
    }
  }
  throw new Error('no C compiler')
}
