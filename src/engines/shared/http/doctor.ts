import type { Clock } from '../../../clock.ts'
import type { Engine, Finding } from '../../../engine.ts'
import type { Random } from '../../../random.ts'
import { findings, sentence, type Findings } from '../findings.ts'
import { checkRoundTrip, timeTrips } from '../round-trip.ts'
import { reasonOf } from './endpoints.ts'

/** Asks every server about itself, all at the same time. */
export async function askServers<T>(
  engine: string,
  urls: readonly string[],
  ask: (url: string) => Promise<T>,
): Promise<{ readonly answers: T[]; readonly reached: Finding[] }> {
  const answers: T[] = []
  const reached = await Promise.all(
    urls.map(async (url) => {
      const report = findings(engine, url)
      try {
        answers.push(await ask(url))
        return report.reachable('Requests can turn to it.')
      } catch (error) {
        const remedy = 'See whether it runs, and whether URL, TLS and firewall let this machine in.'
        const instead = 'The others are asked instead, and one fewer of them may fail.'
        return report.unreachable(reasonOf(error), remedy, urls.length === 1 ? undefined : instead)
      }
    }),
  )
  return { answers, reached }
}

/** A renewal takes two round trips, one of them with the agreement of a majority. */
export async function checkTrips(
  report: Findings,
  trip: () => Promise<unknown>,
  { clock, ttlMs, timeoutMs }: Pick<LeaseCheck, 'clock' | 'ttlMs' | 'timeoutMs'>,
): Promise<Finding> {
  return checkRoundTrip(report, await timeTrips(clock, trip), {
    ttlMs,
    slowMs: timeoutMs / 4,
    tooSlowMs: timeoutMs / 2,
    meaning: `A server has ${Math.round(timeoutMs)} ms to answer. A slower answer counts as none, and leases that are not renewed in time are lost.`,
    ttlPerTrip: 24,
    remedy: 'move the servers nearer or give them faster disks',
  })
}

export interface LeaseCheck {
  readonly clock: Clock
  readonly random: Random
  readonly ttlMs: number
  readonly timeoutMs: number
  /** What it means that a lease can be taken. */
  readonly meaning: string
  /** A request, to see how long it takes. */
  readonly read: () => Promise<unknown>
  /** What else a lease shows. */
  readonly more?: () => Promise<Finding[]>
  /** The id of the finding about this error, and the remedy. */
  readonly refused: (cause: unknown) => readonly [id: string, remedy: string]
}

/** Takes a lease on a name that nobody uses, and gives it back: the only way to know that it can be done. */
export async function checkLease(report: Findings, engine: Engine, check: LeaseCheck): Promise<Finding[]> {
  const { random, ttlMs, meaning, read, more, refused } = check
  const id = random.id()
  const request = { resources: [`check:${id}`], owner: `${id}@check`, ttlMs }
  try {
    const outcome = await engine.acquire(request)
    if (outcome.kind === 'granted') await engine.release({ ...request, token: outcome.token })
    const taken = report.ok('lease', 'A lease could be taken and given back.', meaning)
    return [taken, await checkTrips(report, read, check), ...((await more?.()) ?? [])]
  } catch (error) {
    const [finding, remedy] = refused(error instanceof Error && error.cause !== undefined ? error.cause : error)
    const found = sentence(`No lease could be taken: ${reasonOf(error)}`)
    return [report.critical(finding, found, 'Nobody can get a lease with these options.', remedy)]
  }
}

/** How many servers may fail. */
export function checkSize(report: Findings, id: string, count: number, noun: string): Finding {
  const found = `The cluster has ${count} ${noun}${count === 1 ? '' : 's'}.`
  if (count === 1) {
    return report.warning(id, found, 'While it is down, no lease can be granted or renewed.', 'Run three, or five.')
  }
  if (count % 2 === 0) {
    const meaning = `${count / 2 - 1} of them may fail, no more than of ${count - 1}. The last one only adds something that can fail.`
    return report.note(id, found, meaning, 'Run an odd number of them.')
  }
  return report.ok(id, found, `${(count - 1) / 2} of them may fail at the same time.`)
}
