import { isReached } from './goals.mjs'
import { best } from './tuning.mjs'
import { questionOf, ratesWorstFirst } from './view.mjs'

/**
 * The figures that the documents show, as Markdown made from the kept results. Nothing is typed in by hand, so the
 * documents cannot say anything else than the results do.
 */

/** The part of the README: the chart, and how ringfence compares with the others, the worst first. */
export function summary(report) {
  return [
    '![Bars: sections per second of ringfence, of the best of four other libraries and of bare commands](bench/results/chart.svg)',
    '',
    `Rates of ringfence divided by theirs, run of ${report.date} at commit ${report.commit}; where it is slower comes first.`,
    '',
    '| | of the bare commands | of the best of four other libraries |',
    '|---|---|---|',
    ...ratesWorstFirst(report).map(
      ({ title, toBare, toBest, best }) => `| ${title} | ${times(toBare)} | ${times(toBest)} (${best.library}) |`,
    ),
  ].join('\n')
}

/** The part of the benchmark's own README: what was run, then every rate, those where ringfence fares worst first, then the rest. */
export function ratesTable(report) {
  return [
    `Run of ${report.date} at commit ${report.commit}: Node ${report.node.replace(/^v/, '')}, Redis ${report.redis}, ioredis, loopback, ` +
      `${report.cpu} shared by client and servers, load ${loads(report)}.`,
    '',
    ...rates(report),
    '',
    ...frozen(report),
    ...held(report),
    ...promises(report),
    ...goals(report),
  ].join('\n')
}

function rates(report) {
  const rows = ratesWorstFirst(report)
  const before = rows.find(({ baseline }) => baseline !== undefined)?.baseline.library
  const head = [
    'sections per second',
    'ringfence',
    before,
    'bare commands',
    'the four others',
    'of bare',
    'of the best other',
    'place',
  ]
  const lines = rows.map(({ title, ours, baseline, bare, peers, toBare, toBest }) => {
    const others = peers.map(({ perSecond }) => perSecond || 0)
    const field = [...(toBare === undefined ? [] : [bare.perSecond]), ours.perSecond, ...others]
    const place = `${1 + field.filter((rate) => rate > ours.perSecond).length} of ${field.length}`
    const spread = ours.spread === undefined ? '' : ` ± ${whole((ours.spread * 100) / 2)} %`
    return [
      title,
      `${whole(ours.perSecond)}${spread}`,
      before && whole(baseline?.perSecond),
      bare.perSecond === undefined ? '–' : `${whole(bare.perSecond)}${toBare === undefined ? ' (no waiters)' : ''}`,
      range(others),
      times(toBare),
      times(toBest),
      place,
    ]
  })
  return [line(head), line(head.map((cell) => cell && '---')), ...lines.map(line)]
}

/** Of a table; a column that is not there has undefined in it. */
function line(cells) {
  return `| ${cells.filter((cell) => cell !== undefined).join(' | ')} |`
}

/** The renewal of held leases. */
function held(report) {
  const question = questionOf(report, 7)
  if (question === undefined) return []
  const rows = question.tables[0].rows.filter(({ note }) => note === undefined)
  const ours = rows.find(({ library }) => library === 'ringfence')
  // What is no longer held costs nothing, so those who lost leases are only named.
  const losers = rows.filter(({ lost }) => lost > 0).map(({ library, lost }) => `${library} lost ${whole(lost)} leases`)
  const others = rows.filter((row) => !row.library.startsWith('ringfence') && !(row.lost > 0))
  const before = rows.find((row) => row.library.startsWith('ringfence at'))
  const all = (key, text) =>
    range(
      others.map((row) => row[key]),
      text,
    )
  return [
    `- ${question.title}: ringfence uses ${percent(ours.clientCpu)} of a core in the client` +
      `${before === undefined ? '' : ` (${before.library}: ${percent(before.clientCpu)})`} and ${percent(ours.serverCpu)} in the servers, for ` +
      `${whole(ours.commandsPerSecond)} commands a second in ${whole(ours.requestsPerSecond)} requests; the others ` +
      `${all('clientCpu', percent)} and ${all('serverCpu', percent)}, for ${all('commandsPerSecond')} commands in ${all('requestsPerSecond')} requests${losers.map((text) => `; ${text}`).join('')}.`,
  ]
}

function frozen(report) {
  const rows = questionOf(report, 4)?.tables[0].rows
  if (rows === undefined) return []
  const figures = rows.filter(({ note }) => note === undefined).map(sectionTimes)
  const stuck = rows.filter(({ note }) => note !== undefined).map(({ library }) => library)
  const end = stuck.length === 0 ? '' : `; not finished within the bound: ${stuck.join(', ')}`
  return [`- Five nodes, one of them frozen: ${figures.join('; ')}${end}.`]
}

function sectionTimes({ library, healthyMs, frozenMs, frozenP99Ms }) {
  return `${library} p50 ${ms(frozenMs)} (${ms(healthyMs)} with all five), p99 ${ms(frozenP99Ms)}`
}

function promises(report) {
  const rows = questionOf(report, 10)?.tables[0].rows
  if (rows === undefined) return []
  const counts = rows.map(({ library, oneNode, fiveNodes }) => `${library} ${oneNode} and ${fiveNodes}`)
  return [`- Promises a section on one node and on five: ${counts.join('; ')}.`]
}

/** Every goal with what came out. Older reports had others. */
function goals(report) {
  const all = report.questions.flatMap((question) => question.goals ?? [])
  if (all.length === 0) return []
  const reached = all.filter(isReached).length
  return [
    '',
    `${reached} of ${all.length} goals reached:`,
    '',
    '| question | ratio | measured | bounds | rounds | goal | stretch | |',
    '|---|---|---|---|---|---|---|---|',
    ...all.map((goal) => {
      const { question, text, value, low, high, rounds, verdict } = goal
      const bound = (number) => (number === undefined ? '' : `${goal.atMost ? '≤' : '≥'} ${number}`)
      const bounds = low === undefined || low === null ? '' : `${low.toFixed(2)} to ${high.toFixed(2)}`
      const cells = [question, text, times(value), bounds, rounds || '', bound(goal.goal), bound(goal.stretch), verdict]
      return `| ${cells.join(' | ')} |`
    }),
  ]
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

/** The part about the others' delays: a line for every library and situation, the best in bold. */
export function sweepTable({ date, commit, rows }) {
  const delays = [...new Set(rows.map(({ retryMs }) => retryMs))]
  return [
    `Sections per second, run of ${date} at commit ${commit}; *in italics*: not finished.`,
    '',
    line(['', ...delays.map((delay) => `${delay} ms`)]),
    line(['---', ...delays.map(() => '---')]),
    ...[...grouped(rows)].map(([title, tried]) => {
      const first = best(tried)
      const cells = tried.map((row) => {
        const rate = whole(row.perSecond)
        return row === first ? `**${rate}**` : row.sections === undefined ? rate : `*${rate}*`
      })
      return line([title, ...cells])
    }),
  ].join('\n')
}

/** A row for each question, a column for each engine: before → after, and the ratio of the rounds. */
export function againstTable({ date, before, machine, rounds, rows }) {
  const engines = [...new Set(rows.map(({ engine }) => engine))]
  const questions = [...new Set(rows.map(({ question }) => question))]
  const cell = (question, engine) => {
    const row = rows.find((each) => each.question === question && each.engine === engine)
    if (row === undefined) return '–'
    return `${figure(row.beforeMs)} → ${figure(row.afterMs)} (${row.ratio.toFixed(2)})`
  }
  return [
    `Run of ${date} against commit ${before}: ${machine}; ${rounds} rounds.`,
    '',
    `| ms before → after (ratio) | ${engines.join(' | ')} |`,
    `|---|${engines.map(() => '---|').join('')}`,
    ...questions.map((question) => `| ${question} | ${engines.map((engine) => cell(question, engine)).join(' | ')} |`),
  ].join('\n')
}

function figure(ms) {
  return ms.toFixed(ms < 10 ? 1 : 0)
}

function grouped(rows) {
  const lines = new Map()
  for (const row of rows) {
    const nodes = row.nodes === 1 ? 'one node' : 'five nodes'
    const who = row.processes === 1 ? `${row.waiters} waiters` : `${row.processes} × ${row.waiters} waiters`
    const title = `${who}, ${nodes}: ${row.library}`
    lines.set(title, [...(lines.get(title) ?? []), row])
  }
  return lines
}

function loads({ questions }) {
  const all = questions.flatMap(({ load, loadAfter }) => (loadAfter === undefined ? [load] : [load, loadAfter]))
  return `${Math.min(...all).toFixed(1)} to ${Math.max(...all).toFixed(1)}`
}

function range(values, text = whole) {
  return `${text(Math.min(...values))} to ${text(Math.max(...values))}`
}

function whole(value) {
  return value === undefined ? '–' : Math.round(value).toLocaleString('en')
}

function percent(value) {
  return `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`
}

function times(value) {
  return value === undefined || value === null ? '–' : value.toFixed(2)
}

function ms(value) {
  return `${value.toFixed(2)} ms`
}
