import type { Diagnosis, FindingRow, NodeRow } from '../protocol.ts'
import { bdi, element, find } from './dom.ts'
import { milliseconds, plural } from './format.ts'

type FindingSeverity = FindingRow['severity']
const SEVERITIES: readonly FindingSeverity[] = ['critical', 'warning', 'note', 'ok']

/** The servers of the engine, and what the doctor found. */
export class Health {
  readonly #root = find('health', HTMLElement)
  readonly #nodes = find('nodes', HTMLElement)
  readonly #doctor = find('doctor', HTMLDetailsElement)
  readonly #summary = find('doctor-summary', HTMLElement)
  readonly #findings = find('findings', HTMLElement)
  #rows: readonly NodeRow[] = []
  #found: readonly FindingRow[] = []

  showNodes(rows: readonly NodeRow[]): void {
    this.#rows = rows
    this.#show()
  }

  showDiagnosis({ score, findings }: Diagnosis): void {
    this.#found = findings
    const fine = findings.filter(({ severity }) => severity === 'ok')
    const rest = findings.filter(({ severity }) => severity !== 'ok')
    const wasOpen = this.#findings.querySelector('details')?.open ?? false
    this.#findings.replaceChildren(...rest.map(finding), ...(fine.length === 0 ? [] : [folded(fine, wasOpen)]))
    this.#doctor.hidden = findings.length === 0
    this.#summary.replaceChildren(`${score} of 100: `, ...summary(findings))
    this.#show()
  }

  #show(): void {
    this.#root.hidden = this.#rows.length === 0 && this.#found.length === 0
    this.#nodes.hidden = this.#rows.length === 0
    this.#nodes.replaceChildren(...this.#rows.map((row) => node(row, this.#worst(row.node))))
  }

  #worst(name: string): FindingSeverity {
    return this.#found.find(({ facts }) => facts.some(({ nodes }) => nodes.includes(name)))?.severity ?? 'ok'
  }
}

function summary(found: readonly FindingRow[]): (Node | string)[] {
  const words: Record<FindingSeverity, readonly [string, string]> = {
    critical: ['critical finding', 'critical findings'],
    warning: ['warning', 'warnings'],
    note: ['note', 'notes'],
    ok: ['ok', 'ok'],
  }
  return SEVERITIES.map((severity) => [severity, found.filter((one) => one.severity === severity).length] as const)
    .filter(([, number]) => number > 0)
    .flatMap(([severity, number], index) => [
      index === 0 ? '' : ' · ',
      element('span', { 'data-severity': severity }, plural(number, ...words[severity])),
    ])
}

function node(row: NodeRow, worst: FindingSeverity): HTMLElement {
  const { node: name, sitsOutMs, error } = row
  const state =
    error !== undefined ? 'critical' : sitsOutMs !== undefined && SEVERITIES.indexOf(worst) > 1 ? 'warning' : worst
  return element(
    'li',
    { 'data-severity': state },
    bdi(name, { class: 'name', title: name }),
    element('span', { class: 'numbers' }, ...facts(row)),
  )
}

function facts({ roundTripMs, clockOffsetMs, sitsOutMs, sitsOutLater, error }: NodeRow): HTMLElement[] {
  if (error !== undefined) return [element('span', { class: 'error' }, error)]
  const known = [element('span', {}, roundTripMs === null ? 'not measured' : milliseconds(roundTripMs))]
  if (clockOffsetMs !== null)
    known.push(element('span', { class: 'offset' }, `clock ${milliseconds(clockOffsetMs, true)}`))
  if (sitsOutMs !== undefined) {
    const from = sitsOutLater === true ? 'from the next attempt on' : 'more'
    known.push(element('span', { class: 'sits-out' }, `sits out for ${Math.ceil(sitsOutMs / 1000)} s ${from}`))
  }
  return known
}

/** What is in order is there for those who want to see it. */
function folded(fine: readonly FindingRow[], isOpen: boolean): HTMLElement {
  const details = element(
    'details',
    {},
    element('summary', {}, `${plural(fine.length, 'thing is', 'things are')} in order`),
    element('ul', {}, ...fine.map(finding)),
  )
  details.open = isOpen
  return element('li', { 'data-severity': 'ok', class: 'folded' }, details)
}

function finding({ severity, facts: found, meaning, remedy, id }: FindingRow): HTMLElement {
  return element(
    'li',
    { 'data-severity': severity },
    element('span', { class: 'severity' }, severity),
    element(
      'div',
      {},
      ...found.map((fact) => element('p', { class: 'found' }, ...whose(fact.nodes), fact.found)),
      element('p', {}, meaning),
      ...(remedy === undefined ? [] : [element('p', { class: 'remedy' }, remedy)]),
      element('p', { class: 'id' }, id),
    ),
  )
}

/** Which servers, before what was found on them. */
function whose(nodes: readonly string[]): (Node | string)[] {
  if (nodes.length === 0) return []
  const names = nodes.flatMap((name, index) => [index === 0 ? '' : ', ', bdi(name)])
  return nodes.length === 1 ? [...names, ': '] : [`${nodes.length} servers (`, ...names, '): ']
}
