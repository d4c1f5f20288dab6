import { sleep } from '../clock.ts'
import { EngineError, HeldError } from '../errors.ts'
import type { Lease } from '../lease.ts'
import type { Random } from '../random.ts'
import { ExecutionError, NO_QUORUM, type RedlockAttempts } from './errors.ts'
import { RetryWindow, WINDOW_OVER } from './retry-window.ts'
import { waitMsOf, type RedlockSettings } from './settings.ts'
import type { AcquireCall, SharedLocks } from './shared-locks.ts'

interface WantedLock {
  readonly resources: readonly string[]
  readonly duration: number
  readonly renew: boolean
  readonly settings: RedlockSettings
  readonly onAgainst: (error: Error) => void
}

/**
 * One wait in line for as long as the retries of redlock would take, and an attempt at its end. Where the nodes cannot be asked,
 * further calls as redlock makes them.
 */
export async function acquireLease<Client extends object>(
  shared: SharedLocks<Client>,
  { resources, duration, renew, settings, onAgainst }: WantedLock,
): Promise<{ readonly lease: Lease; readonly attempts: RedlockAttempts<Client> }> {
  const { clock, random, locks } = shared
  const call: AcquireCall<Client> = { made: [], ids: [], resources: resources.length, onAgainst }
  const mostTries = settings.retryCount === -1 ? Infinity : settings.retryCount + 1
  const beganMs = clock.monotonicMs()
  const waitMs = waitMsOf(settings)
  let isLast = waitMs === 0
  for (let tries = 1; ; tries++) {
    const leftMs = Math.max(waitMs - (clock.monotonicMs() - beganMs), 0)
    const wait = isLast ? 0 : leftMs
    const window = wait === 0 || wait === Infinity ? undefined : new RetryWindow(clock, wait)
    const terms = window === undefined ? { wait } : { wait: Infinity, signal: window.signal }
    try {
      const acquire = (): Promise<Lease> => locks.acquire(resources, { ttl: duration, renew, ...terms })
      const lease = await shared.during({ ...call, window }, acquire)
      return { lease, attempts: attemptsOf(call, lease.owner) }
    } catch (error) {
      const failure = (): Error => new ExecutionError(NO_QUORUM, allAttempts(call, beganMs, settings), error)
      if (error === WINDOW_OVER) {
        isLast = true
      } else if (error instanceof EngineError) {
        if (isLast || tries >= mostTries || (error.transient && leftMs === 0)) throw failure()
        await sleep(clock, delayMs(settings, random))
      } else if (error instanceof HeldError) throw failure()
      else throw error
    } finally {
      window?.close()
    }
  }
}

export function delayMs({ retryDelay, retryJitter }: RedlockSettings, random: Random): number {
  return Math.max(0, retryDelay + Math.floor((random.fraction() * 2 - 1) * retryJitter))
}

/** Those that were made, the one that was granted last. */
function attemptsOf<Client extends object>({ made }: AcquireCall<Client>, owner: string): RedlockAttempts<Client> {
  const asked = made.filter(({ ballot }) => ballot.asked > 0)
  const others = asked.filter((attempt) => attempt.owner !== owner)
  return [...others, ...asked.filter((attempt) => attempt.owner === owner)].map(({ ballot }) => ballot.stats)
}

/**
 * As many as redlock would have made: programs count them. Each of them is what the nodes had last said by the time at which
 * redlock would have made it.
 */
function allAttempts<Client extends object>(
  { made }: AcquireCall<Client>,
  beganMs: number,
  { retryCount, retryDelay }: RedlockSettings,
): RedlockAttempts<Client> {
  // Where rivals split the votes, one node is asked alone now and then.
  const most = Math.max(...made.map(({ ballot }) => ballot.asked))
  const asked = made.filter(({ ballot }) => ballot.asked > 0 && ballot.asked === most)
  const [first] = asked
  if (first === undefined || retryCount === -1) return asked.map(({ ballot }) => ballot.stats)
  return Array.from({ length: retryCount + 1 }, (_, index) => {
    const atMs = index === retryCount ? Infinity : beganMs + index * retryDelay
    const latest = asked.findLast((attempt) => attempt.atMs <= atMs) ?? first
    return latest.ballot.stats
  })
}
