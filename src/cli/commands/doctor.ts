import type { Finding } from '../../index.ts'
import { EXIT } from '../exit-codes.ts'
import { withLocks, type Call, type Session } from '../session.ts'
import { setting } from '../settings.ts'
import { wrap } from '../table.ts'
import { timeOf } from '../time.ts'

type Severity = Finding['severity']

const ORDER: readonly Severity[] = ['critical', 'warning', 'note', 'ok']
const LOOK = {
  critical: { mark: '✗', style: 'red' },
  warning: { mark: '!', style: 'yellow' },
  note: { mark: '·', style: 'cyan' },
  ok: { mark: '✓', style: 'green' },
} as const
/** What a finding takes off a full score of 100: one that breaks the lock leaves less than half. */
const COST: Record<Severity, number> = { critical: 60, warning: 15, note: 2, ok: 0 }

/** All findings of `check()`, the worst first. */
export async function doctor(call: Call): Promise<number> {
  const { line, output } = call
  const ttl = setting('ttl', line.options, call.config)
  const options = ttl === undefined ? {} : { ttl: timeOf(ttl.text, ttl.source) }
  const work = async ({ locks, url }: Session): Promise<number> => {
    const findings = [...(await locks.check())].sort(
      (some, other) => ORDER.indexOf(some.severity) - ORDER.indexOf(other.severity),
    )
    const score = scoreOf(findings)
    const worst = findings[0]?.severity ?? 'ok'
    const isFit = worst !== 'critical' && !(line.options.has('strict') && worst === 'warning')
    if (output.json) {
      output.object({ engine: locks.engine.name, url, fit: isFit, score, findings })
    } else if (!output.quiet) {
      for (const finding of findings) show(finding, call)
      const verdict = `${locks.engine.name} (${url}): ${score} of 100, ${summary(findings)}`
      output.line({ style: ['bold', LOOK[worst].style], text: verdict })
    }
    return isFit ? EXIT.ok : EXIT.no
  }
  return withLocks(call, work, () => options)
}

function show({ severity, id, node, found, meaning, remedy }: Finding, { output }: Call): void {
  const { mark, style } = LOOK[severity]
  output.line({ style, text: `${mark} ${severity}` }, ` ${node === undefined ? '' : `${node}: `}${found}`)
  if (severity === 'ok') return
  const width = Math.min(process.stdout.columns ?? 100, 100) - 4
  for (const text of wrap(`${meaning} (${id})`, width)) output.line(`    ${text}`)
  if (remedy === undefined) return
  const [advice = '', ...statement] = remedy.split('\n')
  for (const text of wrap(`→ ${advice}`, width, '  ')) output.line(`    ${text}`)
  // To be copied as it is.
  for (const text of statement) output.line(`      ${text}`)
}

/** At a glance: 100 is nothing to say against it; below 40 is at least one thing that breaks the lock. */
export function scoreOf(findings: readonly Finding[]): number {
  return Math.max(
    0,
    findings.reduce((score, { severity }) => score - COST[severity], 100),
  )
}

function summary(findings: readonly Finding[]): string {
  const counts = ORDER.map((severity) => ({
    severity,
    count: findings.filter((finding) => finding.severity === severity).length,
  }))
  return counts
    .filter(({ count }) => count > 0)
    .map(({ severity, count }) => `${count} ${severity}`)
    .join(', ')
}
