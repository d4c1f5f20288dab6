import type { FindingRow, NodeRow } from '../protocol.ts'
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

  showFindings(found: readonly FindingRow[]): void {
    this.#found = [...found].sort((a, b) => rank(a) - rank(b))
    this.#findings.replaceChildren(...this.#found.map(finding))
    this.#doctor.hidden = this.#found.length === 0
    this.#summary.replaceChildren(...summary(this.#found))
    this.#show()
  }

  #show(): void {
    this.#root.hidden = this.#rows.length === 0 && this.#found.length === 0
    this.#nodes.hidden = this.#rows.length === 0
    this.#nodes.replaceChildren(...this.#rows.map((row) => node(row, this.#worst(row.node))))
  }

  #worst(name: string): FindingSeverity {
    return this.#found.find((one) => one.node === name)?.severity ?? 'ok'
  }
}

function rank({ severity }: Pick<FindingRow, 'severity'>): number {
  return SEVERITIES.indexOf(severity)
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
    error !== undefined ? 'critical' : sitsOutMs !== undefined && rank({ severity: worst }) > 1 ? 'warning' : worst
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

function finding({ severity, node: name, found, meaning, remedy, id }: FindingRow): HTMLElement {
  return element(
    'li',
    { 'data-severity': severity },
    element('span', { class: 'severity' }, severity),
    element(
      'div',
      {},
      element('p', { class: 'found' }, ...(name === undefined ? [] : [bdi(name), ': ']), found),
      element('p', {}, meaning),
      ...(remedy === undefined ? [] : [element('p', { class: 'remedy' }, remedy)]),
      element('p', { class: 'id' }, id),
    ),
  )
}
