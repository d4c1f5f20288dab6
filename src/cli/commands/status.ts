import { sleep, systemClock } from '../../clock.ts'
import type { InLine, LeaseInfo } from '../../index.ts'
import { EXIT, usage } from '../exit-codes.ts'
import { span } from '../../duration.ts'
import { whoIs } from '../../owner.ts'
import type { Output } from '../output.ts'
import { withLocks, type Call } from '../session.ts'
import { printTable } from '../table.ts'
import { numberOf, timeOf } from '../time.ts'
import { heldBy, inspect, permitsOf } from '../who-holds.ts'

/** To the top left, and nothing below. */
const CLEAR = '\u001b[H\u001b[J'

/** Who holds what. */
export async function status(call: Call): Promise<number> {
  const { line, output, signals } = call
  const [resource, ...others] = line.names
  if (others.length > 0) throw usage('expected one resource or none', 'without one it lists them all')
  if (line.options.has('every') && !line.options.has('watch')) throw usage('--every: only with --watch')
  const everyMs = timeOf(line.options.text('every') ?? '1s', '--every', { minMs: 100 })
  const given = line.options.text('permits')
  if (given !== undefined && resource === undefined) throw usage('--permits: expected the name of a pool')
  const permits = given === undefined ? undefined : numberOf(given, '--permits', 1, 1000)
  return withLocks(call, async ({ locks, url }) => {
    const view: View = { resource, permits, output, url }
    const look = (): Promise<LeaseInfo[]> =>
      permits === undefined ? inspect(locks, resource) : permitsOf(locks, resource!)
    if (!line.options.has('watch')) {
      const leases = await look()
      // A pool of permits has leases of other names.
      const isPool = leases.length === 0 && resource !== undefined && permits === undefined
      const ofPool = isPool && !output.quiet && !output.json ? await permitsOf(locks, resource) : []
      if (output.json) output.object({ engine: url, leases: leases.map(forMachines) })
      else if (ofPool.length > 0) output.line(poolInUse(resource!, ofPool))
      else if (!output.quiet) print(leases, view)
      return resource !== undefined && !leases.some(({ offered }) => offered !== true) ? EXIT.no : EXIT.ok
    }
    let last: string | undefined
    while (!signals.interrupted.aborted) {
      const leases = await look()
      const key = leases
        .map(({ resource, owner, token, offered, waiters }) => [resource, owner, token, offered, waiters].join(' '))
        .join('\n')
      // A terminal shows the time run down; others want news alone.
      if (process.stdout.isTTY && !output.json) {
        process.stdout.write(CLEAR)
        print(leases, view)
      } else if (key !== last && output.json)
        output.object({ atMs: systemClock.wallMs(), leases: leases.map(forMachines) })
      else if (key !== last) print(leases, view)
      last = key
      await sleep(systemClock, everyMs, signals.interrupted)
    }
    return EXIT.ok
  })
}

function poolInUse(resource: string, held: readonly LeaseInfo[]): string {
  const [are, least] = [held.length === 1 ? 'permit of it is' : 'permits of it are', held.length]
  return `nobody holds '${resource}' itself, but ${least} ${are} held: ringfence status ${resource} --permits N, with the number of its permits`
}

/** What to show of the leases, and where. */
interface View {
  readonly resource: string | undefined
  readonly permits: number | undefined
  readonly output: Output
  /** The engine that was asked: another one may know of leases where this one knows of none. */
  readonly url: string
}

function forMachines(lease: LeaseInfo): object {
  const { resource, owner, note, token, shared = false, offered, remainingMs, heldMs, waiters, line } = lease
  const times = { remainingMs: rounded(remainingMs) ?? null, heldMs: rounded(heldMs) }
  return { resource, owner, note, token, shared, offered, ...times, waiters, line }
}

function rounded(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms)
}

function print(leases: readonly LeaseInfo[], view: View): void {
  const { resource, permits, output, url } = view
  if (permits !== undefined) printPool(leases, permits, view)
  if (leases.length === 0 && permits !== undefined) return
  if (leases.length === 0)
    return output.line(`${resource === undefined ? 'nothing is held' : `'${resource}' is free`} on ${url}`)
  if (resource !== undefined && leases[0]?.offered === true) {
    output.line(heldBy(leases[0]))
    return printLine(leases[0].line ?? [], output)
  }
  const rows = leases.map(({ resource, owner, token, shared, offered, remainingMs, heldMs, waiters }) => [
    resource,
    offered === true ? `(offered to ${whoIs(owner)})` : shared === true ? `${whoIs(owner)} (shared)` : whoIs(owner),
    token === 0n ? '-' : String(token),
    heldMs === undefined ? '?' : span(heldMs),
    remainingMs === undefined ? 'no end' : span(remainingMs),
    waiters === undefined ? '?' : String(waiters),
  ])
  printTable(output, [['RESOURCE', 'HOLDER', 'TOKEN', 'SINCE', 'LEFT', 'WAITING'], ...rows])
  if (resource !== undefined && permits === undefined) printLine(leases[0]?.line ?? [], output)
}

/** Permits above the number are of processes that have a higher one, or of a time at which it was higher. */
function printPool(leases: readonly LeaseInfo[], permits: number, { resource, output }: View): void {
  const above = leases.filter((lease) => Number(lease.resource.slice(resource!.length + 1)) >= permits).length
  output.line(`${leases.length - above} of ${permits} permits of '${resource}' are held`)
  if (above > 0) output.line(`${above} more, above that number: somebody says, or has said, a higher --permits`)
}

/** Who waits for one resource, the first one first, where the engine knows it. */
function printLine(waiting: readonly InLine[], output: Output): void {
  if (waiting.length === 0) return
  const nowMs = systemClock.wallMs()
  const rows = waiting.map(({ owner, since }, index) => [
    String(index + 1),
    whoIs(owner),
    since === undefined ? '?' : span(Math.max(nowMs - since, 0)),
  ])
  printTable(output, [['NEXT', 'WAITS', 'SINCE'], ...rows])
}
