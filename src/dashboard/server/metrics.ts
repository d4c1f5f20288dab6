import type { FindingRow } from '../protocol.ts'
import type { Engines, WatchedEngine } from './engines.ts'

type MetricLabels = Readonly<Record<string, string>>
type Value = readonly [labels: MetricLabels, value: number]

interface Metric {
  readonly name: string
  readonly type: 'gauge' | 'counter'
  readonly help: string
  /** Nothing where it is not known: a missing value is honest, and a zero is not. */
  readonly of: (watched: WatchedEngine) => readonly Value[]
}

const SEVERITIES: readonly FindingRow['severity'][] = ['critical', 'warning', 'note', 'ok']

const METRICS: readonly Metric[] = [
  {
    name: 'ringfence_engine_reachable',
    type: 'gauge',
    help: '1 if the last look through the engine worked, 0 if it failed.',
    of: ({ pages: { looks } }) => (looks.done + looks.failed === 0 ? [] : [[{}, looks.trouble === null ? 1 : 0]]),
  },
  {
    name: 'ringfence_engine_looks_total',
    type: 'counter',
    help: 'Looks through the engine.',
    of: ({ pages: { looks } }) => [
      [{ outcome: 'done' }, looks.done],
      [{ outcome: 'failed' }, looks.failed],
    ],
  },
  {
    name: 'ringfence_engine_look_age_seconds',
    type: 'gauge',
    help: 'Time since the last look, done or failed. All leases and waiters here are as of that look.',
    of: ({ pages: { looks } }) => known(seconds(looks.agoMs)),
  },
  {
    name: 'ringfence_engine_leases',
    type: 'gauge',
    help: 'Leases that are held.',
    of: ({ pages: { board, looks } }) => (looks.done === 0 ? [] : [[{}, board.figures().leases]]),
  },
  {
    name: 'ringfence_engine_waiters',
    type: 'gauge',
    help: 'Waiting for a lease in the queue of the servers, where the engine knows it.',
    of: ({ pages: { board } }) => known(board.figures().waiters),
  },
  {
    name: 'ringfence_engine_oldest_lease_seconds',
    type: 'gauge',
    help: 'How long the oldest lease has been held; where the engine does not tell, since the dashboard first saw it.',
    of: ({ pages: { board } }) => known(seconds(board.figures().oldestMs)),
  },
  {
    name: 'ringfence_engine_longest_wait_seconds',
    type: 'gauge',
    help: 'How long the first of all who wait has waited, where the engine knows it.',
    of: ({ pages: { board } }) => known(seconds(board.figures().longestWaitMs)),
  },
  {
    name: 'ringfence_engine_nodes',
    type: 'gauge',
    help: 'Servers of the engine, by how they answered the last time.',
    of: ({ pages: { nodes } }) => {
      if (nodes === undefined || nodes.length === 0) return []
      const silent = nodes.filter(({ error }) => error !== undefined).length
      const sitOut = nodes.filter(({ error, sitsOutMs }) => error === undefined && sitsOutMs !== undefined).length
      return [
        [{ state: 'answering' }, nodes.length - silent - sitOut],
        [{ state: 'sitting_out' }, sitOut],
        [{ state: 'silent' }, silent],
      ]
    },
  },
  {
    name: 'ringfence_engine_node_round_trip_seconds',
    type: 'gauge',
    help: 'Round trip to a server, the last time.',
    of: ({ pages: { nodes = [] } }) =>
      nodes.flatMap(({ node, roundTripMs }) => known(seconds(roundTripMs ?? undefined), { node })),
  },
  {
    name: 'ringfence_engine_node_clock_offset_seconds',
    type: 'gauge',
    help: 'How far the clock of a server is ahead of the one of the dashboard.',
    of: ({ pages: { nodes = [] } }) =>
      nodes.flatMap(({ node, clockOffsetMs }) => known(seconds(clockOffsetMs ?? undefined), { node })),
  },
  {
    name: 'ringfence_engine_findings',
    type: 'gauge',
    help: 'What the doctor found, by severity. What several servers have in common is one finding.',
    of: ({ pages: { diagnosis } }) =>
      diagnosis === undefined
        ? []
        : SEVERITIES.map((severity) => {
            return [{ severity }, diagnosis.findings.filter((one) => one.severity === severity).length] as const
          }),
  },
  {
    name: 'ringfence_engine_score',
    type: 'gauge',
    help: 'The score of the doctor: 0 if something is critical, otherwise up to 100.',
    of: ({ pages: { diagnosis } }) => known(diagnosis?.score),
  },
  {
    name: 'ringfence_dashboard_pages',
    type: 'gauge',
    help: 'Open pages of the dashboard.',
    of: ({ pages: { counts } }) => [[{}, counts.streams]],
  },
]

/** Everything as Prometheus reads it: the text format, version 0.0.4. */
export function metricsText({ all, journal }: Engines): string {
  const lines = METRICS.flatMap(({ name, type, help, of }) => {
    const values = all.flatMap((watched) =>
      of(watched).map(([labels, value]) => `${name}${written({ engine: watched.key, ...labels })} ${value}`),
    )
    return values.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...values]
  })
  if (journal !== undefined) {
    const name = 'ringfence_dashboard_history_failed_writes_total'
    lines.push(
      `# HELP ${name} Writes to the file of the history that failed.`,
      `# TYPE ${name} counter`,
      `${name} ${journal.losses.failures}`,
    )
  }
  return `${lines.join('\n')}\n`
}

function known(value: number | undefined, labels: MetricLabels = {}): readonly Value[] {
  return value === undefined || !Number.isFinite(value) ? [] : [[labels, value]]
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1000) / 1e6
}

function written(labels: MetricLabels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`)
  return `{${pairs.join(',')}}`
}

/** A server's name is what its URL says: it may contain anything. */
function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}
