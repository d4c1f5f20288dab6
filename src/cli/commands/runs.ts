import { span } from '../../duration.ts'
import type { RecordedRun } from '../../index.ts'
import { openStore, storeFailure } from '../engines/store.ts'
import { EXIT, usage } from '../exit-codes.ts'
import type { Output } from '../output.ts'
import type { Call } from '../session.ts'
import { storeUrl } from '../settings.ts'
import { printTable } from '../table.ts'
import { numberOf } from '../time.ts'
import { whoIs } from '../../owner.ts'

/** The last runs of a job. */
export async function runs({ line, config, output }: Call): Promise<number> {
  const [job, ...others] = line.names
  if (job === undefined || others.length > 0) throw usage('expected the name of one job', 'ringfence runs NAME')
  const limit = numberOf(line.options.text('limit') ?? '20', '--limit', 1, 1000)
  const url = storeUrl(line.options, config, output)
  if (url === undefined) {
    throw usage(
      'expected a store: where are the runs recorded?',
      '--store URL or RINGFENCE_STORE, as with `run --once`',
    )
  }
  const store = await openStore(url)
  try {
    const found = await store.runs.runs(job, { limit })
    if (output.json) output.object({ store: store.url, job, runs: found.map(forMachines) })
    else if (!output.quiet) print(found, job, output)
    return EXIT.ok
  } catch (error) {
    throw storeFailure(error, store)
  } finally {
    await store.close()
  }
}

function forMachines({ at, tookMs, outcome, message, token, owner, engine }: RecordedRun): object {
  return { atMs: at, tookMs: outcome === 'began' ? null : tookMs, outcome, message, token, owner, engine }
}

/** In the time zone of this machine. */
const TIME = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' })

function print(found: readonly RecordedRun[], job: string, output: Output): void {
  if (found.length === 0) return output.line(`no run of '${job}' is recorded`)
  const rows = found.map(({ at, tookMs, outcome, message, token, owner }) => [
    TIME.format(at),
    outcome === 'began' ? '?' : span(tookMs),
    outcome,
    whoIs(owner),
    String(token),
    message ?? '',
  ])
  printTable(output, [['BEGAN', 'TOOK', 'OUTCOME', 'BY', 'TOKEN', 'MESSAGE'], ...rows])
}
