/**
 * The figures that the documents show, as Markdown made from the kept results. Nothing is typed in by hand, so the
 * documents cannot say anything else than the results do.
 */
const RATES = [
  { number: 1, table: 0, title: 'uncontended, one at a time, one node' },
  { number: 2, table: 0, title: 'uncontended, one at a time, five nodes' },
  { number: 3, table: 0, title: '64 in flight, one node' },
  { number: 3, table: 1, title: '64 in flight, five nodes' },
  { number: 5, table: 0, title: '200 waiters in one process, one node' },
  { number: 5, table: 1, title: '200 waiters in one process, five nodes' },
  { number: 6, table: 0, title: '4 processes of 50 waiters, one node' },
  { number: 6, table: 1, title: '4 processes of 50 waiters, five nodes' },
]

/** A row of the uncontended questions: a limit, not a library. */
const SCRIPTS_ALONE = 'its scripts alone'

/** The part of the README: how ringfence compares with the best of the others, the worst first. */
export function summary(report) {
  const ratios = ratesWorstFirst(report).map(({ title, toBest }) => `${toBest.toFixed(2)} (${title})`)
  return `Rates of ringfence divided by those of the fastest of the four others, run of ${report.date} at commit ${report.commit}: ${ratios.join(', ')}.`
}

/** What was run, then every rate, those where ringfence fares worst first. */
export function ratesTable(report) {
  return [
    `Run of ${report.date} at commit ${report.commit}: Node ${report.node.replace(/^v/, '')}, Redis ${report.redis}, ioredis, loopback, ` +
      `${report.cpu} shared by client and servers, load ${loads(report)}.`,
    '',
    '| sections per second | ringfence | bare commands | the four others | ringfence to the best of these | place |',
    '|---|---|---|---|---|---|',
    ...ratesWorstFirst(report).map(({ line }) => line),
    '',
    ...held(report),
    ...frozen(report),
  ].join('\n')
}

function ratesWorstFirst(report) {
  const rows = RATES.map((panel) => rateRow(report, panel)).filter((row) => row !== undefined)
  return rows.toSorted((a, b) => a.toBest - b.toBest)
}

function rateRow(report, { number, table, title }) {
  const rows = tableOf(report, number, table)
  if (rows === undefined) return undefined
  const ours = rows.find(({ library }) => library === 'ringfence')
  const bare = rows.find(({ library }) => library.startsWith('bare'))
  const others = rates(rows.filter((row) => row !== ours && row !== bare && row.library !== SCRIPTS_ALONE))
  const toBest = ours.perSecond / Math.max(...others)
  // With waiters, the bare commands run without any, since they cannot wait: they have no place there.
  const alike = bare.library === 'bare commands'
  const field = [...(alike ? rates([bare]) : []), ours.perSecond, ...others]
  const place = `${1 + field.filter((rate) => rate > ours.perSecond).length} of ${field.length}`
  const spread = `${whole(ours.perSecond)} ± ${whole((ours.spread * 100) / 2)} %`
  const limit = `${whole(bare.perSecond)}${alike ? '' : ' (no waiters)'}`
  const cells = [title, spread, limit, range(others), toBest.toFixed(2), place]
  return { title, toBest, line: `| ${cells.join(' | ')} |` }
}

/** The renewal of held leases: few requests, many commands. */
function held(report) {
  const rows = tableOf(report, 7, 0)
  if (rows === undefined) return []
  const ours = rows.find(({ library }) => library === 'ringfence')
  const others = rows.filter((row) => row !== ours)
  const all = (key) => range(others.map((row) => row[key]))
  return [
    `- 10,000 held leases, renewed: ringfence has the server run ${whole(ours.commandsPerSecond)} commands a second in ` +
      `${whole(ours.requestsPerSecond)} requests; the others ${all('commandsPerSecond')} commands in ${all('requestsPerSecond')} requests.`,
  ]
}

function frozen(report) {
  const rows = tableOf(report, 4, 0)
  if (rows === undefined) return []
  const figures = rows.filter(({ note }) => note === undefined).map(sectionTimes)
  const stuck = rows.filter(({ note }) => note !== undefined).map(({ library }) => library)
  const end = stuck.length === 0 ? '' : `; not finished within the bound: ${stuck.join(', ')}`
  return [`- Five nodes, one of them frozen: ${figures.join('; ')}${end}.`]
}

function sectionTimes({ library, healthyMs, frozenMs, frozenP99Ms }) {
  return `${library} p50 ${ms(frozenMs)} (${ms(healthyMs)} with all five), p99 ${ms(frozenP99Ms)}`
}

/** The part of the benchmark's own README: every engine beside the others. */
export function enginesTable({ date, commit, machine, rows }) {
  const base = rows[0]
  return [
    `Run of ${date} at commit ${commit}: ${machine}; ten rounds.`,
    '',
    `| | acquire and release, p50 ms | p99 ms | release to the next grant, p50 ms | p50 to that of ${base.engine} |`,
    '|---|---|---|---|---|',
    ...rows.map(({ engine, sectionMs, p99Ms, wakeUpMs }) => {
      const figures = [sectionMs, p99Ms, wakeUpMs].map((value) => value.toFixed(2))
      return `| ${engine} | ${figures.join(' | ')} | ${(sectionMs / base.sectionMs).toFixed(1)} |`
    }),
  ].join('\n')
}

function tableOf(report, number, table) {
  return report.questions.find((question) => question.number === number)?.tables[table]?.rows
}

function rates(rows) {
  return rows.map(({ perSecond }) => perSecond || 0)
}

function loads({ questions }) {
  const all = questions.map(({ load }) => load)
  return `${Math.min(...all).toFixed(1)} to ${Math.max(...all).toFixed(1)}`
}

function range(values) {
  return `${whole(Math.min(...values))} to ${whole(Math.max(...values))}`
}

function whole(value) {
  return Math.round(value).toLocaleString('en')
}

function ms(value) {
  return `${value.toFixed(2)} ms`
}
