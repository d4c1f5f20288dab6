// All that searches for bugs, one after the other, until one finds something: npm run night -- --for 8h
import { spawnSync } from 'node:child_process'
import { parseArgs } from 'node:util'
import { secondsOf } from './seconds.mjs'

const USAGE = `npm run night -- [options]
  --for TIME   all together (default 8h): three quarters of it are the simulator's, and the rest becomes shorter with it
  --plan       prints what would run, and runs nothing`

const { values } = parseArgs({
  options: { for: { type: 'string', default: '8h' }, plan: { type: 'boolean' }, help: { type: 'boolean' } },
})
if (values.help === true) {
  console.log(USAGE)
  process.exit()
}

/** The longest that each of these takes in a night of eight hours, and their shares of a shorter one. */
const EIGHT_HOURS = 8 * 3600
const seconds = secondsOf(values.for, '--for')
const share = (ofEightHours) => Math.max(1, Math.floor((ofEightHours * Math.min(seconds, EIGHT_HOURS)) / EIGHT_HOURS))

const STEPS = [
  { args: ['servers'], next: 'It says above what it could not get; CONTRIBUTING.md says what it needs.' },
  {
    args: ['sim', '--', '--night', '--for', `${Math.floor((seconds * 3) / 4)}s`],
    next: '`npm run sim -- --seed N` plays the seed that is named above. Once it is mended, the seed goes into sim/corpus.ts, and its story into a test.',
  },
  {
    args: ['fuzz', '--', '--for', `${share(600)}s`],
    next: 'The smallest counterexample above goes into the examples of that test, in the same commit as what mends it.',
  },
  {
    args: ['chaos', '--', '--engine', 'all', '--seconds', String(Math.max(5, share(60)))],
    next: '`npm run chaos -- --engine NAME --seed N --seconds S`, as named above, does the same again, as far as real processes can. Look for it in `npm run sim` and `npm run schedules`, too: these play again exactly.',
  },
  {
    // Others than the last night's.
    args: ['schedules', '--', '--seed', String(Math.floor(Math.random() * 1e9)), '--seeds', String(share(2000))],
    next: '`npm run schedules -- --engine NAME --seed N`, as named above, plays it again and prints it.',
  },
]

for (const { args, next } of STEPS) {
  console.log(`npm run ${args.join(' ')}`)
  if (values.plan === true) continue
  const { status, error } = spawnSync('npm', ['run', '--silent', ...args], { stdio: 'inherit' })
  if (status === 0) continue
  if (error !== undefined) console.error(error.message)
  console.error(`\nThe night ends here: \`npm run ${args.join(' ')}\` has ended with ${status ?? 'a signal'}.\n${next}`)
  process.exit(1)
}
if (values.plan !== true) console.log('The night is over, and nothing was found.')
