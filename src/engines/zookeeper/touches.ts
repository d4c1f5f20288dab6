import type { Instant } from '../../clock.ts'

/** Moments closer together than this part of the session's time-out tell nothing new. */
const GRAIN = 1 / 24

/**
 * Until when the servers surely keep our session. Its time-out is counted by the leader, from when the leader last heard
 * of us, and that is not when a server last answered us: a follower that we are connected to tells the leader who is
 * alive only twice a tick, in its answers to the leader's pings, and neither a read nor a write passes for such a sign.
 *
 *     we ── renewal ──▶ follower ── write ──▶ leader: done          (our session is not touched)
 *                       follower dies before its next answer to a ping
 *                       leader: session expires, counted from the ping before
 *
 * So a moment counts once it is long enough ago that the leader knows: half a tick at most. A session lasts two ticks or
 * more, so a quarter of its time-out is enough. Connecting is different: the leader itself is asked then.
 */
export class Touches {
  #reached: Instant
  readonly #answered: Instant[] = []

  constructor(connecting: Instant) {
    this.#reached = connecting
  }

  get size(): number {
    return this.#answered.length
  }

  /** The leader has let us in, at this moment or later. */
  reached(from: Instant): void {
    this.#reached = from
  }

  /** Something that was sent at this moment has been answered. */
  answered(sent: Instant, timeoutMs: number): void {
    const last = this.#answered.at(-1)
    if (last !== undefined && shortestMs(last, sent) < timeoutMs * GRAIN) return
    this.#answered.push(sent)
    while (longestMs(this.#answered[0]!, sent) > timeoutMs) this.#answered.shift()
  }

  /** Whether the session surely lasts for this long from that moment on. */
  cover(from: Instant, forMs: number, timeoutMs: number): boolean {
    let heard = this.#reached
    for (const sent of this.#answered) {
      if (shortestMs(sent, from) >= timeoutMs / 4 && shortestMs(heard, sent) > 0) heard = sent
    }
    return longestMs(heard, from) + forMs <= timeoutMs
  }
}

/** The clocks may disagree: the monotonic one stops while a machine sleeps, the other one jumps. */
function shortestMs(from: Instant, to: Instant): number {
  return Math.min(to.monotonicMs - from.monotonicMs, to.wallMs - from.wallMs)
}

function longestMs(from: Instant, to: Instant): number {
  return Math.max(to.monotonicMs - from.monotonicMs, to.wallMs - from.wallMs)
}
