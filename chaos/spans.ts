/** A stretch of time on the machine's monotonic clock. */
export interface Span {
  readonly fromMs: number
  readonly toMs: number
}

/** When at least `majority` of the servers had been well for `settleMs`, within a whole. Each server has its own outages. */
export function settled(
  whole: Span,
  outages: readonly (readonly Span[])[],
  { majority, settleMs }: { majority: number; settleMs: number },
): Span[] {
  const edges = [whole.fromMs, whole.toMs]
  for (const { fromMs, toMs } of outages.flat()) edges.push(fromMs, toMs)
  const times = [...new Set(edges)].filter((ms) => ms >= whole.fromMs && ms <= whole.toMs).sort((a, b) => a - b)
  const spans: Span[] = []
  for (const [index, fromMs] of times.slice(0, -1).entries()) {
    const well = outages.filter((of) => of.every((outage) => outage.fromMs > fromMs || outage.toMs <= fromMs)).length
    if (well < majority) continue
    const toMs = times[index + 1]!
    const last = spans.at(-1)
    if (last?.toMs === fromMs) spans[spans.length - 1] = { fromMs: last.fromMs, toMs }
    else spans.push({ fromMs, toMs })
  }
  return spans
    .map(({ fromMs, toMs }) => ({ fromMs: fromMs === whole.fromMs ? fromMs : fromMs + settleMs, toMs }))
    .filter(({ fromMs, toMs }) => fromMs < toMs)
}

/** The longest stretch within one of the spans without an event. */
export function longestGap(spans: readonly Span[], eventsMs: readonly number[]): Span {
  const sorted = eventsMs.toSorted((a, b) => a - b)
  const gaps = spans.flatMap(({ fromMs, toMs }) => {
    const marks = [fromMs, ...sorted.filter((ms) => ms > fromMs && ms < toMs), toMs]
    return marks.slice(1).map((ms, index) => ({ fromMs: marks[index]!, toMs: ms }))
  })
  return gaps.reduce(longer, { fromMs: 0, toMs: 0 })
}

function longer(one: Span, other: Span): Span {
  return other.toMs - other.fromMs > one.toMs - one.fromMs ? other : one
}

export function overlap(one: Span, other: Span): boolean {
  return one.fromMs < other.toMs && other.fromMs < one.toMs
}
