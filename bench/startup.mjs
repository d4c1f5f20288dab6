// What the command costs: `ringfence run x -- true` on the embedded engine against `node -e 0`, side by side in one run.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROUNDS = Number(process.argv[2] ?? 20)
/** What is promised. */
const MOST = 2.5

const command = fileURLToPath(new URL('../dist/cli/main.cjs', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'ringfence-startup-'))
const env = { ...process.env, XDG_STATE_HOME: folder, XDG_CONFIG_HOME: folder }

function timed(args) {
  const began = performance.now()
  const { status } = spawnSync(process.execPath, args, { env, cwd: folder, stdio: 'ignore' })
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with ${status}`)
  return performance.now() - began
}

const bare = []
const run = []
try {
  timed([command, 'run', 'x', '--', 'true'])
  for (let round = 0; round < ROUNDS; round++) {
    bare.push(timed(['-e', '0']))
    run.push(timed([command, 'run', 'x', '--', 'true']))
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
const median = (times) => times.toSorted((some, other) => some - other)[times.length >> 1]
const ratio = median(run) / median(bare)
console.log(
  `node -e 0: ${median(bare).toFixed(0)} ms; ringfence run x -- true: ${median(run).toFixed(0)} ms (medians of ${ROUNDS})`,
)
console.log(`ratio ${ratio.toFixed(2)}, promised at most ${MOST}`)
process.exitCode = ratio <= MOST ? 0 : 1
