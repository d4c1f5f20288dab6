import { sleep, systemClock } from '../clock.ts'
import { durationMs } from '../duration.ts'
import type { LeaseInfo, Locks } from '../index.ts'
import { EXIT, usage } from './exit-codes.ts'
import { span, type Output } from './output.ts'
import { withLocks, type Call } from './session.ts'
import { table } from './table.ts'

/** Who holds what. */
export async function status(call: Call): Promise<number> {
  const { line, output, signals } = call
  const [resource, ...others] = line.names
  if (others.length > 0) throw usage('expected one resource or none', 'without one it lists them all')
  const everyMs = durationMs(line.options.text('every') ?? 1000, '--every', { minMs: 100 })
  return withLocks(
    call,
    () => ({}),
    async ({ locks, url }) => {
      if (!line.options.has('watch')) {
        const leases = await inspect(locks, resource)
        if (output.json) output.object({ engine: url, leases: leases.map(forMachines) })
        else if (!output.quiet) for (const text of forPeople(leases, resource, output)) output.line(text)
        return resource !== undefined && leases.length === 0 ? EXIT.no : EXIT.ok
      }
      let last: string | undefined
      while (!signals.interrupted.aborted) {
        const leases = await inspect(locks, resource)
        const key = leases
          .map(({ resource, owner, token, waiters }) => [resource, owner, token, waiters].join(' '))
          .join('\n')
        // A terminal shows the time run down; others want news alone.
        if (process.stdout.isTTY && !output.json) repaint(forPeople(leases, resource, output), output)
        else if (key !== last) show(leases, resource, output)
        last = key
        await sleep(systemClock, everyMs, signals.interrupted)
      }
      return EXIT.ok
    },
  )
}

async function inspect(locks: Locks, resource: string | undefined): Promise<LeaseInfo[]> {
  const leases: LeaseInfo[] = []
  for await (const lease of locks.inspect(resource)) leases.push(lease)
  return leases.sort((some, other) => (some.resource < other.resource ? -1 : 1))
}

function show(leases: readonly LeaseInfo[], resource: string | undefined, output: Output): void {
  if (output.json) output.object({ atMs: systemClock.wallMs(), leases: leases.map(forMachines) })
  else for (const text of forPeople(leases, resource, output)) output.line(text)
}

function forMachines({ resource, owner, token, remainingMs, heldMs, waiters }: LeaseInfo): object {
  const known = {
    ...(heldMs === undefined ? {} : { heldMs: Math.round(heldMs) }),
    ...(waiters === undefined ? {} : { waiters }),
  }
  return { resource, owner, token, remainingMs: remainingMs === undefined ? null : Math.round(remainingMs), ...known }
}

function forPeople(leases: readonly LeaseInfo[], resource: string | undefined, output: Output): string[] {
  if (leases.length === 0) return [resource === undefined ? 'nothing is held' : `'${resource}' is free`]
  const rows = leases.map(({ resource, owner, token, remainingMs, heldMs, waiters }) => [
    resource,
    whoIs(owner),
    String(token),
    heldMs === undefined ? '?' : span(heldMs),
    remainingMs === undefined ? 'no end' : span(remainingMs),
    waiters === undefined ? '?' : String(waiters),
  ])
  const [head = '', ...lines] = table([['RESOURCE', 'HOLDER', 'TOKEN', 'SINCE', 'LEFT', 'WAITING'], ...rows])
  return [output.styled('bold', head), ...lines]
}

/** The label, behind the random part. */
export function whoIs(owner: string): string {
  return owner.slice(owner.indexOf('@') + 1)
}

function repaint(lines: readonly string[], output: Output): void {
  process.stdout.write('\u001b[H\u001b[J')
  for (const text of lines) output.line(text)
}
