import type { Clock, Timer } from '../../clock.ts'
import { grouped, scoreOf, statesOf, type GroupedFinding } from '../../diagnosis.ts'
import type { Engine, Finding, NodeState } from '../../engine.ts'
import { messageOf } from '../../errors.ts'
import type { Diagnosis, FindingRow, NodeRow } from '../protocol.ts'

export interface UpkeepPlan {
  readonly clock: Clock
  readonly redact: (text: string) => string
  check(): Promise<readonly Finding[]>
  nodes(nodes: readonly NodeRow[]): void
  diagnosis(diagnosis: Diagnosis): void
}

/**
 * Round trips and clocks are watched. The doctor asks far more, and its findings rarely change: it is asked again at once when a
 * node goes away, comes back, begins to sit out or votes again.
 */
const NODES_EVERY_MS = 5000
const FINDINGS_EVERY_MS = 60_000

/** Asks about the servers while someone looks: how they answer, and what the doctor says. */
export class Upkeep {
  readonly #rounds: readonly Round[]

  constructor(engine: Engine, plan: UpkeepPlan) {
    const { clock, redact } = plan
    let states: string | undefined
    const probe = async (): Promise<void> => {
      const nodes = (await engine.probe?.()) ?? []
      plan.nodes(nodes.map((node) => shownNode(node, redact)))
      const before = states
      states = statesOf(nodes)
      if (before !== undefined && before !== states) doctor.soon()
    }
    const check = async (): Promise<void> => {
      const findings = grouped(await plan.check().catch((error: unknown) => [unfinished(error)]))
      plan.diagnosis({ score: scoreOf(findings), findings: findings.map((finding) => shownFinding(finding, redact)) })
    }
    const doctor = new Round(clock, FINDINGS_EVERY_MS, check)
    this.#rounds = [new Round(clock, NODES_EVERY_MS, probe), doctor]
  }

  watch(isWatched: boolean): void {
    for (const round of this.#rounds) round.watch(isWatched)
  }
}

/** Does something at once and then again and again, while it is watched; never twice at a time. */
class Round {
  readonly #clock: Clock
  readonly #everyMs: number
  readonly #work: () => Promise<void>
  #isWatched = false
  #timer: Timer | undefined
  #doneMs = -Infinity
  #isBusy = false
  #isDue = false

  constructor(clock: Clock, everyMs: number, work: () => Promise<void>) {
    this.#clock = clock
    this.#everyMs = everyMs
    this.#work = work
  }

  watch(isWatched: boolean): void {
    this.#isWatched = isWatched
    this.#timer?.cancel()
    this.#timer = undefined
    if (isWatched) this.#next()
  }

  /** Does it again now, or after the round that is under way. */
  soon(): void {
    this.#isDue = true
    this.watch(this.#isWatched)
  }

  #next(): void {
    if (this.#isBusy || !this.#isWatched) return
    const leftMs = this.#isDue ? 0 : this.#doneMs + this.#everyMs - this.#clock.monotonicMs()
    this.#timer = this.#clock.timer(() => void this.#round(), Math.max(0, leftMs), true)
  }

  async #round(): Promise<void> {
    this.#isBusy = true
    this.#isDue = false
    try {
      await this.#work()
    } catch {
      // An engine that breaks its promise not to reject has shown itself in the scan's trouble as well.
    } finally {
      this.#isBusy = false
      this.#doneMs = this.#clock.monotonicMs()
      this.#next()
    }
  }
}

function shownNode(state: NodeState, redact: (text: string) => string): NodeRow {
  const { node, roundTripMs, clockOffsetMs, sitsOutMs, sitsOutLater = false, error } = state
  return {
    node: redact(node),
    roundTripMs: rounded(roundTripMs),
    clockOffsetMs: rounded(clockOffsetMs),
    ...(sitsOutMs === undefined ? {} : { sitsOutMs: Math.ceil(sitsOutMs), sitsOutLater }),
    ...(error === undefined ? {} : { error: redact(error) }),
  }
}

/** To the hundredth of a millisecond. */
function rounded(ms: number | undefined): number | null {
  return ms === undefined ? null : Math.round(ms * 100) / 100
}

function shownFinding(finding: GroupedFinding, redact: (text: string) => string): FindingRow {
  const { id, severity, facts, meaning, remedy } = finding
  return {
    id,
    severity,
    facts: facts.map(({ found, nodes }) => ({ found: redact(found), nodes: nodes.map(redact) })),
    meaning: redact(meaning),
    ...(remedy === undefined ? {} : { remedy: redact(remedy) }),
  }
}

function unfinished(error: unknown): Finding {
  return {
    id: 'dashboard/check-failed',
    severity: 'warning',
    found: `The check failed: ${messageOf(error).replace(/\.$/, '')}.`,
    meaning: 'The doctor could not look at the engine.',
  }
}
