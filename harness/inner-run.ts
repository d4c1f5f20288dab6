import { existsSync, readFileSync } from 'node:fs'
import { serversFolder } from '../scripts/servers/cache-folder.mjs'
import { Home } from './command.ts'

interface Report {
  readonly numPassedTests: number
  readonly testResults: readonly {
    readonly name: string
    readonly message: string
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[]
  }[]
}

export interface InnerRun {
  readonly passed: number
  /** What did not pass, by name: a test, or a file of which no test could be read. */
  readonly failed: readonly string[]
}

const root = `${import.meta.dirname}/..`

/**
 * A run of Vitest within a test, elsewhere or with other servers. `start` is the runtime, as the shell is to call it. It ends with
 * the `signal` of that test, whose time may be over before.
 */
export async function innerRun(
  start: string,
  args: string,
  env: Record<string, string>,
  signal: AbortSignal,
): Promise<InnerRun> {
  await using home = new Home()
  const report = home.file('report.json')
  const vitest = `${start} node_modules/vitest/vitest.mjs run --reporter=json --outputFile="${report}"`
  const inner = {
    RINGFENCE_SERVERS: serversFolder(),
    // Apart from the ports of the outer run's workers.
    RINGFENCE_PORTS_FROM: '4',
    DENO_DIR: home.file('deno'),
    DENO_NO_UPDATE_CHECK: '1',
    ...env,
  }
  const run = home.shell(`cd "${root}" && ${vitest} ${args}`, { env: inner })
  signal.addEventListener('abort', () => void run.kill())
  const ended = await run.ended
  if (!existsSync(report)) throw new Error(`exit ${ended.code}, without a report: ${ended.stdout}${ended.stderr}`)
  const { numPassedTests, testResults } = JSON.parse(readFileSync(report, 'utf8')) as Report
  const failed = testResults.flatMap(({ name, message, assertionResults }) => {
    const tests = assertionResults.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName)
    // An error that belongs to no test, such as one of importing the file, is the file's.
    return assertionResults.length === 0 ? [`${name}: ${message}`] : tests
  })
  if (ended.code !== (failed.length > 0 ? 1 : 0)) throw new Error(`exit ${ended.code}: ${ended.stdout}${ended.stderr}`)
  return { passed: numPassedTests, failed }
}
