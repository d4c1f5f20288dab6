import { fork } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { commit } from '../commit.ts'
import { CORPUS } from '../corpus.ts'
import { byTest } from './by-test.ts'
import { withBug, type Mutation } from './mutation.ts'
import { MUTATIONS } from './mutations.ts'
import { keep, kept } from './results.ts'
import type { Finding, Task } from './trial.ts'

/**
 * Every mutation must be caught, or the checkers prove nothing; and the code as it is must pass. With `--keep` what came out is written
 * into results.json and the table of docs/testing/gate.md, and what is there already of this commit is not done again.
 */
const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    by: { type: 'string' },
    seeds: { type: 'string' },
    jobs: { type: 'string' },
    corpus: { type: 'boolean' },
    keep: { type: 'boolean' },
  },
})
const CODE = path.resolve(import.meta.dirname, '../..')
/** With `--corpus` each seed that is kept must still catch its bug. */
const isCorpus = values.corpus === true
const seeds = isCorpus ? 0 : Number(values.seeds ?? 1500)

/** A copy of the compiled code with the bug in it. */
function mutated(mutation: Mutation): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-gate-'))
  for (const part of ['src', 'sim']) cpSync(path.join(CODE, part), path.join(folder, part), { recursive: true })
  // Real drivers are found from there, too.
  const modules = [CODE, path.dirname(CODE)].map((place) => path.join(place, 'node_modules')).find(existsSync)
  if (modules !== undefined) symlinkSync(modules, path.join(folder, 'node_modules'))
  writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }')
  const file = path.join(folder, mutation.file)
  writeFileSync(file, withBug(readFileSync(file, 'utf8'), mutation))
  return folder
}

async function find(mutation: Mutation): Promise<Finding> {
  if (mutation.test !== undefined) return byTest(mutation)
  const folder = mutated(mutation)
  try {
    return await trial(folder, { by: mutation.by, name: mutation.name, seeds })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

function trial(folder: string, task: Task): Promise<Finding> {
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

const version = commit()
const keeps = values.keep === true
if (keeps && !/^[0-9a-f]+$/.test(version))
  throw new Error(`--keep names the commit of what it keeps, and this is ${version}: commit src/ and sim/ first`)
const known = keeps ? kept().filter((result) => result.commit === version) : []
const chosen = MUTATIONS.filter(
  ({ name, by }) =>
    (values.only === undefined || name.includes(values.only)) &&
    (values.by === undefined || by === values.by) &&
    (!isCorpus || CORPUS.some(({ bug }) => bug === name)) &&
    !known.some(({ bug }) => bug === name),
)
const rest = [...chosen]
const survivors: string[] = []
console.log(`commit ${version}, ${chosen.length} mutations, at most ${seeds} seeds each`)
await Promise.all(
  Array.from({ length: Number(values.jobs ?? availableParallelism()) }, async () => {
    for (let mutation = rest.shift(); mutation !== undefined; mutation = rest.shift()) {
      const beganMs = performance.now()
      const { caught, how } = await find(mutation)
      if (!caught) survivors.push(mutation.name)
      const seconds = Math.round((performance.now() - beganMs) / 100) / 10
      const date = new Date().toISOString().slice(0, 10)
      if (keeps) keep({ bug: mutation.name, caught, how, seconds, date, commit: version })
      console.log(`${caught ? 'caught  ' : 'SURVIVES'} ${mutation.name} [${mutation.from}]: ${how}, ${seconds} s`)
    }
  }),
)
console.log(`${chosen.length - survivors.length} of ${chosen.length} caught`)
process.exitCode = survivors.length === 0 ? 0 : 1
