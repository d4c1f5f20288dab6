// What it costs to load ringfence, and to start the command, beside a Node that does nothing and beside other libraries.
// `npm run build && node bench/startup.mjs [rounds] [node]`. In every round each of them is started once, one after the
// other, so that all have the same noise; what is shown are medians over the rounds of the ratio to, and the difference
// from, `node -e 0` of the same round. On a busy machine only the processor time can be believed; it has that of the
// processes that `ringfence run` starts in it, although they run beside it.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROUNDS = Number(process.argv[2] ?? 40)
const NODE = process.argv[3] ?? process.execPath
/** What is promised, for Node 20. */
const MOST = { addedMs: 35, ratio: 2 }

const command = fileURLToPath(new URL('../dist/cli/main.cjs', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'ringfence-startup-'))
const env = { ...process.env, XDG_STATE_HOME: folder, XDG_CONFIG_HOME: folder }

const OURS = 'ringfence, ringfence/redis'
const RUN = 'ringfence run x -- true'

/** What is started, with the arguments of Node. */
const cases = new Map([
  ['node -e 0', ['-e', '0']],
  ['an empty module', importing()],
  [OURS, importing('ringfence', 'ringfence/redis')],
  ['redlock 5 beta', importing('redlock')],
  ['@sesamecare-oss/redlock', importing('@sesamecare-oss/redlock')],
  ['redis-semaphore', importing('redis-semaphore')],
  ['redlock-universal', importing('redlock-universal')],
  ['ioredis', importing('ioredis')],
  [`${OURS}, ioredis`, importing('ringfence', 'ringfence/redis', 'ioredis')],
  ['ringfence --version', [command, '--version']],
  [RUN, [command, 'run', 'x', '--', 'true']],
])

/** A file of its own: `-e` would be loaded in another way. */
function importing(...modules) {
  const urls = modules.map((name) => JSON.stringify(import.meta.resolve(name)))
  const file = join(folder, `${modules.join('+').replaceAll(/\W+/g, '-') || 'empty'}.mjs`)
  writeFileSync(file, urls.map((url) => `import ${url}\n`).join(''))
  return [file]
}

/** The processor time of all processes that have ended, by the kernel's ticks of 10 ms; nothing where there is no /proc. */
function processorMs() {
  try {
    const stat = readFileSync('/proc/self/stat', 'latin1')
    const [user, system] = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .slice(13)
    return (Number(user) + Number(system)) * 10
  } catch {
    return Number.NaN
  }
}

function timed(args) {
  const usedMs = processorMs()
  const began = performance.now()
  const { status } = spawnSync(NODE, args, { env, cwd: folder, stdio: 'ignore' })
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with ${status}`)
  return { tookMs: performance.now() - began, usedMs: processorMs() - usedMs }
}

function quantile(values, part) {
  return values.toSorted((some, other) => some - other)[Math.floor(values.length * part)]
}

function median(values) {
  return quantile(values, 0.5)
}

const rounds = []
try {
  // Once before it counts: files are in the page cache then, and the file of locks exists.
  for (const args of cases.values()) timed(args)
  for (let round = 0; round < ROUNDS; round++) rounds.push([...cases.values()].map(timed))
} finally {
  rmSync(folder, { recursive: true, force: true })
}

const version = spawnSync(NODE, ['--version'], { encoding: 'utf8' }).stdout.trim()
const bareMs = median(rounds.map(([bare]) => bare.tookMs))
const [load] = loadavg()
console.log(
  `Node ${version}, medians of ${ROUNDS} rounds; node -e 0 took ${bareMs.toFixed(0)} ms; load ${load.toFixed(1)}\n`,
)
console.log('added ms   ratio   quartiles of it   processor ms   ratio   what')
const results = new Map()
for (const [index, name] of [...cases.keys()].entries()) {
  const addedMs = median(rounds.map((round) => round[index].tookMs - round[0].tookMs))
  const ratios = rounds.map((round) => round[index].tookMs / round[0].tookMs)
  const ratio = median(ratios)
  results.set(name, { addedMs, ratio })
  const spread = `${quantile(ratios, 0.25).toFixed(2)} to ${quantile(ratios, 0.75).toFixed(2)}`
  // The mean, because of the ticks.
  const [usedMs, bareUsedMs] = [index, 0].map((at) => rounds.reduce((sum, round) => sum + round[at].usedMs, 0) / ROUNDS)
  const used = `${usedMs.toFixed(1).padStart(15)}${(usedMs / bareUsedMs).toFixed(2).padStart(8)}`
  console.log(`${addedMs.toFixed(1).padStart(8)}${ratio.toFixed(2).padStart(8)}${spread.padStart(18)}${used}   ${name}`)
}
const { addedMs } = results.get(OURS)
const { ratio } = results.get(RUN)
console.log(`\nOn Node 20, at most ${MOST.addedMs} ms are promised for ${OURS}, and ${MOST.ratio} times for ${RUN}.`)
process.exitCode = addedMs <= MOST.addedMs && ratio <= MOST.ratio ? 0 : 1
