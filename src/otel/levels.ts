import type { Attributes, MeterProvider, ObservableResult } from '@opentelemetry/api'

/** How many there are now, for one engine and one class of resources. */
export interface Level {
  readonly attributes: Attributes
  waiters: number
  leases: number
  /** Since the start. */
  handOvers: number
}

/** Our name in OpenTelemetry. */
export const SCOPE = 'ringfence'

/** One for each provider: of two callbacks that observe the same attributes, OpenTelemetry keeps the later value and not the sum. */
export function onePerProvider<T>(make: (provider: MeterProvider) => T): (provider: MeterProvider) => T {
  const known = new WeakMap<MeterProvider, T>()
  return (provider) => {
    const one = known.get(provider) ?? make(provider)
    known.set(provider, one)
    return one
  }
}

/**
 * Numbers that change with every lease are counted here and read when metrics are collected: adding to an instrument four times
 * for each lease would cost more than all other work.
 */
export class Levels {
  readonly #levels = new Map<string, Level>()
  readonly #collecting = new Set<() => void>()

  static readonly of = onePerProvider((provider) => new Levels(provider))

  constructor(provider: MeterProvider) {
    const meter = provider.getMeter(SCOPE)
    const observe = (result: ObservableResult, name: 'waiters' | 'leases' | 'handOvers'): void => {
      for (const level of this.#levels.values()) result.observe(level[name], level.attributes)
    }
    const waiters = { unit: '{waiter}', description: 'Calls that have no outcome yet.' }
    meter.createObservableUpDownCounter('ringfence.waiters', waiters).addCallback((result) => {
      for (const prepare of this.#collecting) prepare()
      observe(result, 'waiters')
    })
    const leases = { unit: '{lease}', description: 'Leases that are held.' }
    meter.createObservableUpDownCounter('ringfence.leases', leases).addCallback((result) => observe(result, 'leases'))
    const handOvers = { unit: '{handover}', description: 'Leases handed over within the process.' }
    meter
      .createObservableCounter('ringfence.handovers', handOvers)
      .addCallback((result) => observe(result, 'handOvers'))
  }

  /** Called when metrics are collected, before anything is read. */
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
