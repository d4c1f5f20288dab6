import { sleep, systemClock } from '../../clock.ts'
import { countsOf, grouped, restartedSince, scoreOf, statesOf, type GroupedFinding } from '../../diagnosis.ts'
import type { Finding, NodeState } from '../../index.ts'
import { EXIT } from '../exit-codes.ts'
import { withLocks, type Call, type Session } from '../session.ts'
import { setting } from '../settings.ts'
import { wrap } from '../table.ts'
import { timeOf } from '../time.ts'

const LOOK = {
  critical: { mark: '✗', style: 'red' },
  warning: { mark: '!', style: 'yellow' },
  note: { mark: '·', style: 'cyan' },
  ok: { mark: '✓', style: 'green' },
} as const

/** How often `--watch` asks whether a server has changed its state. */
const PROBE_EVERY_MS = 1000
/** How long after the last look it looks again anyway; sooner where something is critical, which may be so no more. */
const LOOK_EVERY_MS = 60_000
const LOOK_SOON_MS = 10_000
/** A look during which servers come and go is made again at once, this many times at most. */
const MOST_LOOKS = 3

interface Examination {
  readonly findings: readonly Finding[]
  readonly groups: readonly GroupedFinding[]
  readonly servers: readonly NodeState[]
  readonly score: number
  readonly isFit: boolean
  /** Those that answer, and did not answer a probe before. */
  readonly back: readonly string[]
}

/** The findings of `check()`, those of several servers together, the worst first. What is in order is only counted. */
export async function doctor(call: Call): Promise<number> {
  const { line } = call
  const ttl = setting('ttl', line.options, call.config)
  const options = ttl === undefined ? {} : { ttl: timeOf(ttl.text, ttl.source) }
  const work = async (session: Session): Promise<number> => {
    const first = await examined(call, session)
    report(call, session, first)
    const { isFit } = line.options.has('watch') ? await watched(call, session, first) : first
    return isFit ? EXIT.ok : EXIT.no
  }
  return withLocks(call, work, () => options)
}

/** `silent`: who did not answer a probe since the last look; afterwards, who did not when it was over. */
async function examined({ line, output }: Call, { locks }: Session, silent = new Set<string>()): Promise<Examination> {
  const isWatched = line.options.has('watch')
  const isShown = output.json || line.options.has('verbose') || isWatched
  for (let look = 1; ; look++) {
    const before = isWatched ? await locks.probe() : []
    const findings = await locks.check()
    const servers = isShown ? await locks.probe() : []
    // A server that went or came back meanwhile is in the findings as it was before: they would describe a state that is over.
    const isSteady = !isWatched || statesOf(before) === statesOf(servers)
    for (const node of silentOf(before)) silent.add(node)
    const later = isSteady ? [] : silentOf(servers)
    if (!isSteady && look < MOST_LOOKS) {
      for (const node of later) silent.add(node)
      continue
    }
    const groups = grouped(findings)
    const score = scoreOf(groups)
    const isFit = score > 0 && !(line.options.has('strict') && groups[0]?.severity === 'warning')
    // As they were before, so that the next probe finds what has changed since.
    const shown = isSteady ? servers : before
    const away = silentOf(shown)
    const back = [...silent].filter((node) => !away.includes(node))
    silent.clear()
    for (const node of later) silent.add(node)
    return { findings, groups, servers: shown, score, isFit, back }
  }
}

/**
 * Looks again when a server goes away, comes back, was started again, begins to sit out or votes again, and now and then, until it
 * is interrupted. Reports only what has changed: not that a round trip took longer this time.
 */
async function watched(call: Call, session: Session, first: Examination): Promise<Examination> {
  const { interrupted } = call.signals
  let last = first
  /** So that an outage is told which is over before the look is. */
  const silent = new Set<string>()
  for (let sinceMs = 0; ; sinceMs += PROBE_EVERY_MS) {
    await sleep(systemClock, PROBE_EVERY_MS, interrupted)
    if (interrupted.aborted) return last
    const probed = withRuns(await session.locks.probe(), last.servers)
    for (const node of silentOf(probed)) silent.add(node)
    const wasAway = silentOf(last.servers)
    const isMissed = [...silent].some((node) => !wasAway.includes(node))
    const isChanged = isMissed || statesOf(probed) !== statesOf(last.servers)
    if (!isChanged && sinceMs < (last.score === 0 ? LOOK_SOON_MS : LOOK_EVERY_MS)) continue
    const seen = await examined(call, session, silent)
    const servers = withRuns(seen.servers, last.servers)
    const restarted = restartedSince(last.servers, servers)
    // The last report has shown it away, or this one says that it was started again.
    const back = seen.back.filter((node) => !wasAway.includes(node) && !restarted.includes(node))
    const next = { ...seen, servers, back }
    if (back.length > 0 || inShort(next) !== inShort(last)) report(call, session, next, restarted)
    last = next
    sinceMs = 0
  }
}

/** Of a server that is away, its last run: when it is back, that is what tells a restart from a network that was cut. */
function withRuns(now: readonly NodeState[], before: readonly NodeState[]): readonly NodeState[] {
  return now.map((state) => {
    const run = state.run ?? before.find(({ node }) => node === state.node)?.run
    return run === undefined ? state : { ...state, run }
  })
}

function silentOf(servers: readonly NodeState[]): readonly string[] {
  return servers.filter(({ error }) => error !== undefined).map(({ node }) => node)
}

function inShort({ groups, servers }: Examination): string {
  return statesOf(servers) + JSON.stringify(groups.map(({ id, severity }) => [id, severity]))
}

/** As in `runs`: in the time zone of this machine. */
const TIME = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' })

function report(call: Call, { locks, url }: Session, diagnosis: Examination, restarted: readonly string[] = []): void {
  const { line, output } = call
  const { findings, groups, servers, score, isFit, back } = diagnosis
  if (output.json) {
    const atMs = systemClock.wallMs()
    const told = { ...(restarted.length > 0 ? { restarted } : {}), ...(back.length > 0 ? { back } : {}) }
    return output.object({
      atMs,
      engine: locks.engine.name,
      url,
      fit: isFit,
      score,
      ...told,
      findings,
      groups,
      servers,
    })
  }
  if (output.quiet) return
  const isAll = line.options.has('verbose')
  if (line.options.has('watch')) output.line({ style: 'bold', text: TIME.format(systemClock.wallMs()) })
  for (const node of restarted)
    output.line({ style: 'yellow', text: `! ${node} was started again since the last report` })
  for (const node of back)
    output.line({ style: 'yellow', text: `! ${node} went away and came back since the last report` })
  for (const group of groups) if (isAll || group.severity !== 'ok') show(group, call)
  const fine = groups.filter(({ severity }) => severity === 'ok').length
  if (!isAll && fine > 0) {
    const { mark, style } = LOOK.ok
    const things = `${fine} thing${fine === 1 ? ' is' : 's are'} as ${fine === 1 ? 'it' : 'they'} should be`
    output.line({ style, text: `${mark} ok` }, ` ${things} (--verbose shows ${fine === 1 ? 'it' : 'them'})`)
  }
  if (isAll) for (const server of servers) output.line(`  ${answerOf(server)}`)
  const worst = groups[0]?.severity ?? 'critical'
  const verdict = `${locks.engine.name} (${url}): ${score} of 100, ${countsOf(groups)}`
  output.line({ style: ['bold', LOOK[worst].style], text: verdict })
  output.line(`  ${meaningOf(score)}`)
}

/** How a server answers now. */
function answerOf({ node, roundTripMs, clockOffsetMs, sitsOutMs, error }: NodeState): string {
  if (error !== undefined || roundTripMs === undefined) return `${node}: ${error ?? 'no answer'}`
  const side = (clockOffsetMs ?? 0) < 0 ? 'behind' : 'ahead'
  const clock = clockOffsetMs === undefined ? '' : `, its clock is ${Math.abs(clockOffsetMs).toFixed(1)} ms ${side}`
  const out = sitsOutMs === undefined ? '' : `, sits out for ${Math.ceil(sitsOutMs / 1000)} s`
  return `${node}: answers in ${roundTripMs.toFixed(1)} ms${clock}${out}`
}

function meaningOf(score: number): string {
  if (score === 0) return '0 means: do not rely on it before what is critical is put right.'
  return score === 100 ? 'Nothing is left to do.' : 'Locks work; a warning takes 10 points off 100, and a note 1.'
}

function show({ severity, id, facts, meaning, remedy }: GroupedFinding, { output }: Call): void {
  const { mark, style } = LOOK[severity]
  const [first, ...others] = facts.map(({ found, nodes }) => `${whose(nodes)}${found}`)
  output.line({ style, text: `${mark} ${severity}` }, ` ${first}`)
  for (const text of others) output.line(`    ${text}`)
  if (severity === 'ok') return
  const width = Math.min(process.stdout.columns ?? 100, 100) - 4
  for (const text of wrap(`${meaning} (${id})`, width)) output.line(`    ${text}`)
  if (remedy === undefined) return
  const [advice = '', ...statement] = remedy.split('\n')
  for (const text of wrap(`→ ${advice}`, width, '  ')) output.line(`    ${text}`)
  // To be copied as it is.
  for (const text of statement) output.line(`      ${text}`)
}

/** Which servers, before what was found on them. */
function whose(nodes: readonly string[]): string {
  if (nodes.length === 0) return ''
  return nodes.length === 1 ? `${nodes[0]}: ` : `${nodes.length} servers (${nodes.join(', ')}): `
}
