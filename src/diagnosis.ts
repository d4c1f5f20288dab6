import type { Finding, NodeState } from './engine.ts'

type Severity = Finding['severity']

/** The worst first. */
const SEVERITIES: readonly Severity[] = ['critical', 'warning', 'note', 'ok']

/** One finding, of one server or of several. */
export interface GroupedFinding extends Pick<Finding, 'id' | 'severity' | 'meaning' | 'remedy'> {
  /** What was found, and on which servers. Servers that say the same are together; none: it is about the engine as a whole. */
  readonly facts: readonly { readonly found: string; readonly nodes: readonly string[] }[]
}

/** Findings that mean the same and ask for the same are one, however many servers they are about. The worst come first. */
export function grouped(findings: readonly Finding[]): GroupedFinding[] {
  const groups = new Map<string, { readonly first: Finding; readonly facts: Map<string, string[]> }>()
  for (const finding of findings) {
    const { id, severity, node, found, meaning, remedy } = finding
    const key = JSON.stringify([id, severity, meaning, remedy, node === undefined])
    const group = groups.get(key) ?? { first: finding, facts: new Map<string, string[]>() }
    groups.set(key, group)
    const nodes = group.facts.get(found) ?? []
    group.facts.set(found, nodes)
    if (node !== undefined && !nodes.includes(node)) nodes.push(node)
  }
  return [...groups.values()]
    .map(({ first: { id, severity, meaning, remedy }, facts }) => ({
      id,
      severity,
      facts: [...facts].map(([found, nodes]) => ({ found, nodes })),
      meaning,
      ...(remedy === undefined ? {} : { remedy }),
    }))
    .sort((some, other) => SEVERITIES.indexOf(some.severity) - SEVERITIES.indexOf(other.severity))
}

/** What a finding takes off a full score of 100, once and not for each of its servers. */
const COST: Record<Exclude<Severity, 'critical'>, number> = { warning: 10, note: 1, ok: 0 }

/**
 * 0: something is critical, so no lease can be granted, or two may hold one. Above 0 locks work, and the rest up to 100 is what is
 * left to do: 10 for each warning and 1 for each note.
 */
export function scoreOf(findings: readonly GroupedFinding[]): number {
  const [worst] = findings
  if (worst === undefined || worst.severity === 'critical') return 0
  const cost = findings.reduce((sum, { severity }) => sum + (severity === 'critical' ? 0 : COST[severity]), 0)
  return Math.max(1, 100 - cost)
}

/** What is to be looked at again when it changes: which servers answer, which of them vote, and whether one was started again. */
export function statesOf(servers: readonly NodeState[]): string {
  return JSON.stringify(
    servers.map(({ node, error, sitsOutMs, run }) => [
      node,
      error === undefined,
      sitsOutMs === undefined,
      error === undefined ? run : undefined,
    ]),
  )
}

/** The servers that were started again since, as far as they tell. */
export function restartedSince(before: readonly NodeState[], now: readonly NodeState[]): readonly string[] {
  const runs = new Map(before.map(({ node, run }) => [node, run]))
  return now.flatMap(({ node, run }) => {
    const former = runs.get(node)
    return run !== undefined && former !== undefined && run !== former ? [node] : []
  })
}

const NOUNS: ReadonlySet<Severity> = new Set<Severity>(['warning', 'note'])

/** `2 critical, 3 warnings, 1 note, 16 ok`: how many of each there are. */
export function countsOf(findings: readonly Pick<Finding, 'severity'>[]): string {
  return SEVERITIES.map((severity) => [findings.filter((one) => one.severity === severity).length, severity] as const)
    .filter(([count]) => count > 0)
    .map(([count, severity]) => `${count} ${severity}${count > 1 && NOUNS.has(severity) ? 's' : ''}`)
    .join(', ')
}
