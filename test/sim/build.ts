import { execFile } from 'node:child_process'
import { mkdtempSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'

const ROOT = path.resolve(import.meta.dirname, '../..')

/** Builds the simulator as `npm run sim` does, but in a folder of its own: tests run side by side. Whoever asks deletes it. */
export async function buildSimulator(): Promise<string> {
  const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-sim-'))
  writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }')
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  await node(path.join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', 'tsconfig.sim.json', '--outDir', folder)
  return folder
}

export function node(...args: string[]): Promise<{ stdout: string }> {
  return promisify(execFile)(process.execPath, args, { cwd: ROOT })
}
