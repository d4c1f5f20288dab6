import type { Attributes, Counter, Histogram, MeterProvider } from '@opentelemetry/api'
import type { DenialReason, LockEvent } from '../events.ts'
import type { GuardEvent } from '../guards/guard.ts'
import { classOf, commonAttributes, errorType, type Classify } from './attributes.ts'
import { Levels, SCOPE, type Level } from './levels.ts'
import { Records } from './records.ts'
import { Servers } from './servers.ts'

/** From a lease in memory to a queue of minutes, in seconds. */
const WAIT_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
/** From a short section to a leader of a day. */
const HOLD_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 21_600, 86_400]
/** A renewal that succeeds at once leaves two thirds. */
const SLACK_PARTS = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
/** The core reports stalls of a tenth of a second and more. */
const STALL_SECONDS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
/** Within one machine, one zone, one region, around the world; 2 s is about the longest request timeout. */
const TRIP_SECONDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5]

const OUTCOME = 'ringfence.outcome'
const REASON = 'ringfence.reason'

const DENIED: Record<DenialReason, string> = {
  held: 'refused',
  timeout: 'timed_out',
  aborted: 'aborted',
  // Ended by us, not by a fault of the engine.
  closed: 'aborted',
  failed: 'error',
}

/** `unnoticed`: the lease had ended before, and only its release found that out. */
const LOSSES = ['stolen', 'unreachable', 'doubtful', 'expired', 'max-hold', 'abandoned', 'unnoticed']
const RENEWALS = ['renewed', 'doubtful', 'lost']

/** The common attributes of one engine's leases of one class, and the attributes that are most often needed with them. */
interface CallLabels {
  readonly level: Level
  readonly common: Attributes
  readonly granted: Attributes
  readonly released: Attributes
}

export class Metrics {
  readonly #classify: Classify | undefined
  readonly #levels: Levels
  readonly #servers: Servers
  readonly #records = new Records()
  readonly #labels = new Map<string, CallLabels>()
  readonly #calls = new Map<number, CallLabels>()
  /** By owner. */
  readonly #holds = new Map<string, CallLabels>()
  readonly #acquire: Histogram
  readonly #refusals: Counter
  readonly #failures: Counter
  readonly #hold: Histogram
  readonly #renewals: Counter
  readonly #slack: Histogram
  readonly #losses: Counter
  readonly #stalls: Histogram
  readonly #trips: Histogram
  readonly #rejections: Counter

  constructor(provider: MeterProvider, classify?: Classify) {
    this.#classify = classify
    this.#levels = Levels.of(provider)
    this.#servers = Servers.of(provider)
    this.#levels.beforeCollecting(() => this.#records.flush())
    const meter = provider.getMeter(SCOPE)
    const histogram = (name: string, unit: string, description: string, bounds: number[]): Histogram =>
      meter.createHistogram(name, { unit, description, advice: { explicitBucketBoundaries: bounds } })
    const counter = (name: string, unit: string, description: string): Counter =>
      meter.createCounter(name, { unit, description })
    this.#acquire = histogram('ringfence.acquire.duration', 's', 'Time from the call to its outcome.', WAIT_SECONDS)
    this.#refusals = counter(
      'ringfence.attempt.refusals',
      '{attempt}',
      'Attempts that were refused because of another holder.',
    )
    this.#failures = counter('ringfence.attempt.failures', '{attempt}', 'Attempts that the engine could not make.')
    this.#hold = histogram('ringfence.hold.duration', 's', 'Time for which a lease was held.', HOLD_SECONDS)
    this.#renewals = counter('ringfence.renewals', '{renewal}', 'Renewals of leases.')
    const left = 'Part of the ttl that was left when a renewal was proved.'
    this.#slack = histogram('ringfence.renewal.slack', '1', left, SLACK_PARTS)
    this.#losses = counter('ringfence.losses', '{lease}', 'Leases that ended without being given back.')
    this.#stalls = histogram('ringfence.stall.duration', 's', 'Time for which the process did not run.', STALL_SECONDS)
    this.#trips = histogram('ringfence.node.duration', 's', 'Round trip of a command to a node.', TRIP_SECONDS)
    this.#rejections = counter('ringfence.guard.rejections', '{rejection}', 'Calls that a guard refused.')
  }

  heard(event: LockEvent | GuardEvent, engine: string): void {
    switch (event.type) {
      case 'asked': {
        const labels = this.#labelsOf(engine, event.resources)
        this.#calls.set(event.call, labels)
        labels.level.waiters++
        return
      }
      case 'granted': {
        const labels = this.#answered(event.call)
        if (labels === undefined) return
        this.#records.add(this.#acquire, event.waitedMs / 1000, labels.granted)
        this.#holds.set(event.owner, labels)
        labels.level.leases++
        if (event.handedOver) labels.level.handOvers++
        return
      }
      case 'denied': {
        const labels = this.#answered(event.call)
        if (labels === undefined) return
        const why = event.reason === 'failed' ? { 'error.type': errorType(event.cause) } : {}
        const attributes = { ...labels.common, [OUTCOME]: DENIED[event.reason], ...why }
        return this.#records.add(this.#acquire, event.waitedMs / 1000, attributes)
      }
      case 'refused': {
        const labels = this.#calls.get(event.call)
        return this.#refusals.add(1, { ...labels?.common, [REASON]: event.reason })
      }
      case 'failed': {
        const labels = this.#calls.get(event.call)
        return this.#failures.add(1, { ...labels?.common, 'error.type': errorType(event.cause) })
      }
      case 'renewed': {
        const labels = this.#holds.get(event.owner)
        if (labels === undefined) return
        this.#renewals.add(1, { ...labels.common, [OUTCOME]: 'renewed' })
        return this.#records.add(this.#slack, event.slackMs / event.ttlMs, labels.common)
      }
      case 'doubtful': {
        const labels = this.#holds.get(event.owner)
        return labels && this.#renewals.add(1, { ...labels.common, [OUTCOME]: 'doubtful' })
      }
      case 'lost': {
        const labels = this.#ended(event.owner)
        if (labels === undefined) return
        this.#records.add(this.#hold, event.heldMs / 1000, { ...labels.common, [OUTCOME]: 'lost' })
        this.#losses.add(1, { ...labels.common, [REASON]: event.reason })
        // A renewal has found that the lease is no longer ours.
        if (event.reason === 'stolen') this.#renewals.add(1, { ...labels.common, [OUTCOME]: 'lost' })
        return
      }
      case 'released': {
        const labels = this.#ended(event.owner)
        if (labels === undefined) return
        if (event.ours === true) return this.#records.add(this.#hold, event.heldMs / 1000, labels.released)
        const outcome = event.ours === 'unknown' ? 'unknown' : 'lost'
        this.#records.add(this.#hold, event.heldMs / 1000, { ...labels.common, [OUTCOME]: outcome })
        if (outcome === 'lost') this.#losses.add(1, { ...labels.common, [REASON]: 'unnoticed' })
        return
      }
      case 'left':
      case 'moved': {
        const labels = this.#ended(event.owner)
        return labels && this.#records.add(this.#hold, event.heldMs / 1000, { ...labels.common, [OUTCOME]: event.type })
      }
      case 'stalled':
        return this.#records.add(this.#stalls, event.lateMs / 1000, { 'ringfence.engine': engine })
      case 'roundTrip': {
        const { node, operation, outcome, cause } = event
        const where = { 'ringfence.engine': engine, 'ringfence.node': node, 'ringfence.operation': operation }
        const why = cause === undefined ? {} : { 'error.type': errorType(cause) }
        return this.#records.add(this.#trips, event.tookMs / 1000, { ...where, [OUTCOME]: outcome, ...why })
      }
      case 'rejected': {
        const { guard, reason, resource } = event
        const kind = this.#classify === undefined ? {} : { 'ringfence.resource': classOf([resource], this.#classify) }
        return this.#rejections.add(1, { 'ringfence.guard': guard, [REASON]: reason, ...kind })
      }
      case 'probed':
        return this.#servers.heard(engine, event.servers)
      case 'unrecorded':
      case 'attempt':
      case 'waiting':
    }
  }

  #answered(call: number): CallLabels | undefined {
    const labels = this.#calls.get(call)
    if (labels === undefined) return undefined
    this.#calls.delete(call)
    labels.level.waiters--
    return labels
  }

  /** Undefined for a lease that is known to have ended, or that was released before any caller got it. */
  #ended(owner: string): CallLabels | undefined {
    const labels = this.#holds.get(owner)
    if (labels === undefined) return undefined
    this.#holds.delete(owner)
    labels.level.leases--
    return labels
  }

  #labelsOf(engine: string, resources: readonly string[]): CallLabels {
    const kind = this.#classify === undefined ? '' : classOf(resources, this.#classify)
    const key = `${engine} ${kind}`
    let labels = this.#labels.get(key)
    if (labels === undefined) {
      const common = commonAttributes(engine, resources, this.#classify)
      labels = {
        level: this.#levels.level(common),
        common,
        granted: { ...common, [OUTCOME]: 'granted' },
        released: { ...common, [OUTCOME]: 'released' },
      }
      this.#labels.set(key, labels)
      this.#begin(common)
    }
    return labels
  }

  /** An alert on the rise of a counter does not see a counter that appears with the value 1, so each starts with 0. */
  #begin(common: Attributes): void {
    for (const reason of LOSSES) this.#losses.add(0, { ...common, [REASON]: reason })
    for (const outcome of RENEWALS) this.#renewals.add(0, { ...common, [OUTCOME]: outcome })
  }
}
