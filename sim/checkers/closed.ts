import type { History, Verdict } from '../history.ts'

/** What takes or keeps a lease; giving back what comes late goes on. */
const TAKING = new Set(['acquire', 'confirm', 'extend', 'handOver'])

/**
 * From the moment at which locks begin to close nobody gets a lease from them that is not over, and once closed they take and
 * renew nothing.
 */
export function closed(history: History): Verdict {
  const checker = 'closed'
  const closing = new Set<string>()
  const shut = new Map<string, number>()
  const begun = new Set<string>()
  for (const event of history.of('closing', 'shut', 'holds', 'send')) {
    if (event.kind === 'closing') closing.add(event.process)
    else if (event.kind === 'shut') shut.set(event.process, event.lastId)
    else {
      const { process, at, owner } = event
      if (event.kind === 'send') {
        const step = `${event.what} ${owner} ${event.node}`
        // What was begun before goes on: in the driver, or once more where a node did not know the script.
        if (event.id <= (shut.get(process) ?? Infinity)) begun.add(step)
        if (begun.has(step) || !TAKING.has(event.what)) continue
      } else if (!closing.has(process) || event.untilMs <= at) continue
      const what = event.kind === 'holds' ? 'got a lease' : `sent ${event.what}`
      return { checker, verdict: 'false', why: `${process} ${what} after close()`, at, owners: [owner] }
    }
  }
  if (closing.size === 0) return { checker, verdict: 'unknown', why: 'no locks were closed in the middle' }
  return { checker, verdict: 'true' }
}
