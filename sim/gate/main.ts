import { fork } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { commit } from '../commit.ts'
import type { Mutation } from './mutation.ts'
import { MUTATIONS } from './mutations.ts'
import type { Finding } from './trial.ts'

/** Every mutation must be caught, or the checkers prove nothing; and the code as it is must pass. */
const { values } = parseArgs({
  options: { only: { type: 'string' }, seeds: { type: 'string' }, jobs: { type: 'string' } },
})
const CODE = path.resolve(import.meta.dirname, '../..')
const seeds = Number(values.seeds ?? 1500)

/** A copy of the compiled code with the bug in it. */
function mutated(mutation: Mutation): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-gate-'))
  for (const part of ['src', 'sim']) cpSync(path.join(CODE, part), path.join(folder, part), { recursive: true })
  writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }')
  const file = path.join(folder, mutation.file)
  let text = readFileSync(file, 'utf8')
  for (const { find, replace } of mutation.changes) {
    const count = text.split(find).length - 1
    if (count !== 1)
      throw new Error(`${mutation.name}: found ${count} times in ${mutation.file}, expected once: ${find}`)
    text = text.replace(find, () => replace)
  }
  writeFileSync(file, text)
  return folder
}

function trial(folder: string, task: { by: Mutation['by']; seeds: number }): Promise<Finding> {
  return new Promise((resolve, reject) => {
    const child = fork(path.join(folder, 'sim/gate/trial.js'), { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] })
    let stderr = ''
    child.stderr!.on('data', (text) => (stderr += String(text)))
    child.once('message', (finding) => resolve(finding as Finding))
    // Code so broken that it ends the process is caught too.
    child.once('exit', (code) =>
      code === 0
        ? undefined
        : resolve({
            caught: true,
            how: `the run ends: ${stderr.split('\n').find((line) => line.includes('Error')) ?? code}`,
          }),
    )
    child.once('error', reject)
    child.send(task)
  })
}

const chosen = MUTATIONS.filter(({ name }) => values.only === undefined || name.includes(values.only))
const rest = [...chosen]
const survivors: string[] = []
console.log(`commit ${commit()}, ${chosen.length} mutations, at most ${seeds} seeds each`)
await Promise.all(
  Array.from({ length: Number(values.jobs ?? availableParallelism()) }, async () => {
    for (let mutation = rest.shift(); mutation !== undefined; mutation = rest.shift()) {
      const beganMs = performance.now()
      const folder = mutated(mutation)
      const { caught, how } = await trial(folder, { by: mutation.by, seeds })
      rmSync(folder, { recursive: true })
      if (!caught) survivors.push(mutation.name)
      const took = `${((performance.now() - beganMs) / 1000).toFixed(1)} s`
      console.log(`${caught ? 'caught  ' : 'SURVIVES'} ${mutation.name} [${mutation.from}]: ${how}, ${took}`)
    }
  }),
)
console.log(`${chosen.length - survivors.length} of ${chosen.length} caught`)
process.exitCode = survivors.length === 0 ? 0 : 1
