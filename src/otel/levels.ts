import type { Attributes, MeterProvider } from '@opentelemetry/api'

/** How many there are now, of an engine and a class of resources. */
export interface Level {
  readonly attributes: Attributes
  waiters: number
  leases: number
  /** So far. */
  handOvers: number
}

/** The name that OpenTelemetry knows us by. */
export const SCOPE = 'ringfence'

const known = new WeakMap<MeterProvider, Levels>()

/**
 * What changes with every lease is counted here and read when metrics are collected: adding to an instrument four times a section
 * would cost more than all the rest. One for all who measure with a provider, because of two callbacks that observe the same
 * attributes the later one would win, and not their sum.
 */
export class Levels {
  readonly #levels = new Map<string, Level>()
  readonly #collecting = new Set<() => void>()

  static of(provider: MeterProvider): Levels {
    let levels = known.get(provider)
    if (levels === undefined) {
      levels = new Levels(provider)
      known.set(provider, levels)
    }
    return levels
  }

  constructor(provider: MeterProvider) {
    const meter = provider.getMeter(SCOPE)
    const waiters = { unit: '{waiter}', description: 'Calls without an outcome yet.' }
    meter.createObservableUpDownCounter('ringfence.waiters', waiters).addCallback((result) => {
      for (const prepare of this.#collecting) prepare()
      for (const level of this.#levels.values()) result.observe(level.waiters, level.attributes)
    })
    const leases = { unit: '{lease}', description: 'Leases held.' }
    meter.createObservableUpDownCounter('ringfence.leases', leases).addCallback((result) => {
      for (const level of this.#levels.values()) result.observe(level.leases, level.attributes)
    })
    const handOvers = { unit: '{handover}', description: 'Leases passed straight on within the process.' }
    meter.createObservableCounter('ringfence.handovers', handOvers).addCallback((result) => {
      for (const level of this.#levels.values()) result.observe(level.handOvers, level.attributes)
    })
  }

  /** Is called when metrics are collected, before anything is read. */
  beforeCollecting(prepare: () => void): void {
    this.#collecting.add(prepare)
  }

  level(attributes: Attributes): Level {
    const key = JSON.stringify(attributes)
    let level = this.#levels.get(key)
    if (level === undefined) {
      level = { attributes, waiters: 0, leases: 0, handOvers: 0 }
      this.#levels.set(key, level)
    }
    return level
  }
}
