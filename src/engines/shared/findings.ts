import type { Finding } from '../../engine.ts'

type Report = (id: string, found: string, meaning: string, remedy?: string) => Finding

/** Writes the findings of one engine, or of one of its servers. What was found, its meaning and its remedy are full sentences. */
export interface Findings {
  /** What is as it should be has no remedy. */
  readonly ok: (id: string, found: string, meaning: string) => Finding
  readonly note: Report
  readonly warning: Report
  readonly critical: Report
  /** A server that answers. */
  readonly reachable: (meaning: string) => Finding
  /** A server that does not. `instead` says what happens where other servers can stand in for it; without them it is critical. */
  readonly unreachable: (why: unknown, remedy: string, instead?: string) => Finding
}

/** `findings('etcd', url).ok('version', …)` is a finding with the id `etcd/version` about that server. */
export function findings(engine: string, node?: string): Findings {
  const report =
    (severity: Finding['severity']): Report =>
    (id, found, meaning, remedy) => ({
      id: `${engine}/${id}`,
      severity,
      ...(node === undefined ? {} : { node }),
      found,
      meaning,
      ...(remedy === undefined ? {} : { remedy }),
    })
  const [ok, warning, critical] = [report('ok'), report('warning'), report('critical')]
  return {
    ok,
    note: report('note'),
    warning,
    critical,
    reachable: (meaning) => ok('reachable', 'The server answers.', meaning),
    unreachable(why, remedy, instead) {
      const found = sentence(`The server does not answer: ${why instanceof Error ? why.message : String(why)}`)
      if (instead === undefined) return critical('reachable', found, 'No lease can be granted or renewed.', remedy)
      return warning('reachable', found, instead, remedy)
    },
  }
}

/** Ends with a full stop, also where the last words are a server's or a driver's. */
export function sentence(text: string): string {
  const trimmed = text.trim()
  return /[.!?]$/.test(trimmed) ? trimmed : `${trimmed}.`
}

export function milliseconds(ms: number): string {
  const size = Math.abs(ms)
  return `${size >= 100 ? ms.toFixed(0) : size >= 1 ? ms.toFixed(1) : ms.toFixed(2)} ms`
}

export function percent(part: number): string {
  return `${(part * 100).toFixed(Math.abs(part) >= 0.001 ? 2 : 3)} %`
}
