// The tests that hand arbitrary input to the library, each file of them for as long as is asked: npm run fuzz -- --for 10m
// What was found must not vanish: a second run of a test draws other input.
import { spawnSync } from 'node:child_process'
import { parseArgs } from 'node:util'
import { secondsOf } from './seconds.mjs'

const { values } = parseArgs({ options: { for: { type: 'string', default: '1m' } } })
const seconds = secondsOf(values.for, '--for')
const { status } = spawnSync(
  'npx',
  ['vitest', 'run', '--retry=0', 'test/unit/fuzz', 'test/fuzz', 'test/unit/cli/engines/urls', 'test/dashboard/fuzz'],
  {
    stdio: 'inherit',
    env: { ...process.env, RINGFENCE_FUZZ_SECONDS: String(seconds) },
  },
)
process.exit(status ?? 1)
