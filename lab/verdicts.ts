import { exclusion } from '../sim/checkers/exclusion.ts'
import { guardedStore, lostUpdates } from '../sim/checkers/guard.ts'
import { leasesOf } from '../sim/checkers/leases.ts'
import { signal } from '../sim/checkers/signal.ts'
import { tokens } from '../sim/checkers/tokens.ts'
import { History, type Verdict } from '../sim/history.ts'

/** What had happened by then. */
export function until(history: History, atMs: number): History {
  const before = new History()
  for (const event of history.events) if (event.at <= atMs) before.add(event)
  return before
}

/**
 * The words of the simulator's own checkers on what has happened so far: those that need neither the end of a run nor a record of
 * every fault, which the scenes do not keep. The last three promise nothing, and say what became of it.
 */
export function verdicts(history: History): Verdict[] {
  const byHand = { verdict: 'unknown', why: 'a lock that is written by hand has none' } as const
  const isByHand = history.of('holds').length > 0 && history.of('holds').every(({ token }) => token === 0)
  return [
    exclusion(history),
    isByHand ? { checker: 'tokens', ...byHand } : tokens(history),
    isByHand ? { checker: 'signal', ...byHand } : signal(history),
    guardedStore(history),
    plainStore(history),
    waiting(history),
    asking(history),
  ]
}

/** The store without a guard promises nothing: this only says what became of its updates. */
function plainStore(history: History): Verdict {
  const checker = 'plain store'
  if (!history.of('write').some(({ store }) => store === 'unguarded'))
    return { checker, verdict: 'unknown', why: 'nobody wrote' }
  const [lost] = lostUpdates(history, 'unguarded')
  return lost === undefined ? { checker, verdict: 'true' } : { checker, verdict: 'false', ...lost }
}

const LONG_MS = 2000

/** For how long it was wanted, and nobody had it. */
function waiting(history: History): Verdict {
  const checker = 'waiting'
  const nowMs = history.events.at(-1)?.at ?? 0
  const open = new Map<number, number>()
  const wanted: { fromMs: number; toMs: number }[] = []
  for (const event of history.of('call', 'return')) {
    if (event.kind === 'call') open.set(event.call, event.at)
    else wanted.push({ fromMs: open.get(event.call) ?? event.at, toMs: event.at })
    if (event.kind === 'return') open.delete(event.call)
  }
  for (const fromMs of open.values()) wanted.push({ fromMs, toMs: nowMs })
  if (wanted.length === 0) return { checker, verdict: 'unknown', why: 'nobody asked yet' }
  const held = leasesOf(history).sort((a, b) => a.fromMs - b.fromMs)
  let longest = { ms: 0, at: 0 }
  for (const { fromMs, toMs } of wanted) {
    let freeMs = fromMs
    for (const lease of [...held, { fromMs: toMs, endMs: toMs }]) {
      const idle = Math.min(lease.fromMs, toMs) - freeMs
      if (idle > longest.ms) longest = { ms: idle, at: freeMs }
      freeMs = Math.max(freeMs, lease.endMs)
    }
  }
  if (longest.ms <= LONG_MS) return { checker, verdict: 'true' }
  const why = `for ${Math.round(longest.ms)} ms it was wanted and nobody had it`
  return { checker, verdict: 'false', why, at: longest.at, owners: [] }
}

const MANY = 25
const ENOUGH_TURNS = 3

/** How often a node was asked for each time that somebody got it. */
function asking(history: History): Verdict {
  const checker = 'asking'
  const counts = new Map<string, number>()
  for (const { node } of history.of('exec')) counts.set(node, (counts.get(node) ?? 0) + 1)
  const turns = history.of('holds').length
  if (turns < ENOUGH_TURNS) return { checker, verdict: 'unknown', why: 'too few got it yet' }
  const [node, most] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? ['', 0]
  if (most / turns <= MANY) return { checker, verdict: 'true' }
  const why = `${node} was asked ${most} times, and ${turns} got it`
  return { checker, verdict: 'false', why, at: history.events.at(-1)!.at, owners: [] }
}

/** What went wrong in a whole run, if anything: the worst of it. */
export function damageOf(history: History): string | undefined {
  const words = new Map(verdicts(history).map((word) => [word.checker, word]))
  for (const checker of ['plain store', 'guarded store', 'exclusion', 'waiting', 'asking']) {
    const word = words.get(checker)!
    if (word.verdict === 'false') return word.why
  }
  return undefined
}
