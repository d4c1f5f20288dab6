// What it costs to load ringfence, and to start the command, beside a Node that does nothing and beside other libraries.
// `npm run build && node bench/startup.mjs [rounds] [node] [which]`; `which` is a pattern for what is started besides `node -e 0`.
// In every round each of them is started three times, one after the other, so that all have the same noise. Of the time that passes
// medians over the rounds are shown, of the ratio to, and the difference from, `node -e 0` of the same round. Of the processor time the
// least of all rounds: others on the machine can only add to it. On a busy machine it alone can be believed. It is that of `getrusage`, as bash tells it, with the time of the processes that `ringfence run` starts in it,
// although they run beside it.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROUNDS = Number(process.argv[2] ?? 15)
const NODE = process.argv[3] ?? process.execPath
const WHICH = new RegExp(process.argv[4] ?? '')

const command = fileURLToPath(new URL('../dist/cli/main.cjs', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'ringfence-startup-'))
const env = { ...process.env, XDG_STATE_HOME: folder, XDG_CONFIG_HOME: folder }

const BARE = 'node -e 0'
const OURS = 'ringfence, ringfence/redis'
const VERSION = 'ringfence --version'
const STATUS = 'ringfence status'
const RUN = 'ringfence run x -- true'
const version = spawnSync(NODE, ['--version'], { encoding: 'utf8' }).stdout.trim()
/**
 * The most processor time that is right: of some what is added to `node -e 0`, of others how many times it is. Of `run` it is what was measured, 1.92 on
 * Node 20 and 2.86 since 22, which starts in half the time, with room for a busy machine.
 */
const MOST = {
  [OURS]: { addedMs: 35 },
  [VERSION]: { ratio: 2 },
  [STATUS]: { ratio: 2 },
  [RUN]: { ratio: version.startsWith('v20.') ? 2.4 : 3.5 },
}

/** What is started, with the arguments of Node. */
const all = new Map([
  [BARE, ['-e', '0']],
  ['an empty module', importing()],
  [OURS, importing('ringfence', 'ringfence/redis')],
  ['redlock 5 beta', importing('redlock')],
  ['@sesamecare-oss/redlock', importing('@sesamecare-oss/redlock')],
  ['redis-semaphore', importing('redis-semaphore')],
  ['redlock-universal', importing('redlock-universal')],
  ['ioredis', importing('ioredis')],
  [`${OURS}, ioredis`, importing('ringfence', 'ringfence/redis', 'ioredis')],
  [VERSION, [command, '--version']],
  [STATUS, [command, 'status']],
  [RUN, [command, 'run', 'x', '--', 'true']],
  ['the least that run needs', [fileURLToPath(new URL('least-of-run.cjs', import.meta.url))]],
])
const cases = new Map([...all].filter(([name]) => name === BARE || WHICH.test(name)))

/** A file of its own: `-e` would be loaded in another way. */
function importing(...modules) {
  const urls = modules.map((name) => JSON.stringify(import.meta.resolve(name)))
  const file = join(folder, `${modules.join('+').replaceAll(/\W+/g, '-') || 'empty'}.mjs`)
  writeFileSync(file, urls.map((url) => `import ${url}\n`).join(''))
  return [file]
}

/** How often it is started for one figure: bash cuts off what is less than a millisecond. */
const STARTS = 3
const TIMED = 'TIMEFORMAT="%R %U %S"; time for one in $STARTS; do "$@" >/dev/null 2>&1 || exit; done'

function timed(args) {
  const { status, stderr } = spawnSync('bash', ['-c', TIMED, 'bash', NODE, ...args], {
    env: { ...env, LC_ALL: 'C', STARTS: '+ '.repeat(STARTS) },
    cwd: folder,
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with ${status}: ${stderr}`)
  const [took, user, system] = stderr.trim().split(' ').map(Number)
  return { tookMs: (took * 1000) / STARTS, usedMs: ((user + system) * 1000) / STARTS }
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

const bareTookMs = median(rounds.map(([bare]) => bare.tookMs))
const [load] = loadavg()
console.log(`Node ${version}, ${ROUNDS} rounds; node -e 0 took ${bareTookMs.toFixed(0)} ms; load ${load.toFixed(1)}\n`)
console.log('added ms   ratio   quartiles of it   processor ms   ratio   what')
const took = ({ tookMs }) => tookMs
const used = ({ usedMs }) => usedMs
const broken = []
for (const [index, name] of [...cases.keys()].entries()) {
  const differences = (of) => rounds.map((round) => of(round[index]) - of(round[0]))
  const ratios = (of) => rounds.map((round) => of(round[index]) / of(round[0]))
  const [usedMs, bareMs] = [index, 0].map((at) => Math.min(...rounds.map((round) => used(round[at]))))
  const ratio = usedMs / bareMs
  const spread = `${quantile(ratios(took), 0.25).toFixed(2)} to ${quantile(ratios(took), 0.75).toFixed(2)}`
  const [addedMs, times] = [median(differences(took)).toFixed(1), median(ratios(took)).toFixed(2)]
  console.log(
    `${addedMs.padStart(8)}${times.padStart(8)}${spread.padStart(18)}${usedMs.toFixed(1).padStart(15)}${ratio.toFixed(2).padStart(8)}   ${name}`,
  )
  const most = MOST[name]
  if (ratio > most?.ratio) broken.push(`${name}: ${ratio.toFixed(2)} times ${BARE}, at most ${most.ratio} are right`)
  if (usedMs - bareMs > most?.addedMs) broken.push(`${name}: more than ${most.addedMs} ms of processor time`)
}
for (const promise of broken) console.log(`\nNot kept: ${promise}`)
process.exitCode = broken.length === 0 ? 0 : 1
