import type { Attributes, MeterProvider, ObservableResult } from '@opentelemetry/api'
import type { LockEvent } from '../events.ts'
import { SCOPE } from './levels.ts'

type ProbedServer = Extract<LockEvent, { type: 'probed' }>['servers'][number]

interface Seen {
  readonly attributes: Attributes
  readonly state: ProbedServer
}

const known = new WeakMap<MeterProvider, Servers>()

/**
 * What each server said when it was last asked. Nothing is asked for the metrics themselves: they are read from the event of
 * `locks.probe()` and `locks.check()`. One for each provider, for the reason that `Levels` has.
 */
export class Servers {
  readonly #seen = new Map<string, Seen>()

  static of(provider: MeterProvider): Servers {
    let servers = known.get(provider)
    if (servers === undefined) {
      servers = new Servers(provider)
      known.set(provider, servers)
    }
    return servers
  }

  constructor(provider: MeterProvider) {
    const meter = provider.getMeter(SCOPE)
    const read =
      (value: (state: ProbedServer) => number | undefined) =>
      (result: ObservableResult): void => {
        for (const { attributes, state } of this.#seen.values()) {
          const number = value(state)
          if (number !== undefined) result.observe(number, attributes)
        }
      }
    const up = { unit: '1', description: 'Whether a server answered when it was last asked: 1, or 0.' }
    meter
      .createObservableGauge('ringfence.server.up', up)
      .addCallback(read(({ error }) => (error === undefined ? 1 : 0)))
    const ahead = { unit: 's', description: 'How far the clock of a server is ahead of ours.' }
    meter
      .createObservableGauge('ringfence.server.clock_offset', ahead)
      .addCallback(read(({ clockOffsetMs }) => (clockOffsetMs === undefined ? undefined : clockOffsetMs / 1000)))
    const used = { unit: 'By', description: 'Memory that the data of a server takes.' }
    meter
      .createObservableGauge('ringfence.server.memory.used', used)
      .addCallback(read(({ memory }) => memory?.usedBytes))
    const limit = { unit: 'By', description: 'The most that the data of a server may take.' }
    meter
      .createObservableGauge('ringfence.server.memory.limit', limit)
      .addCallback(read(({ memory }) => memory?.limitBytes))
    const evictions = { unit: '{key}', description: 'Keys that a server has removed to make room.' }
    meter
      .createObservableCounter('ringfence.server.evictions', evictions)
      .addCallback(read(({ memory }) => memory?.evictedKeys))
  }

  heard(engine: string, servers: readonly ProbedServer[]): void {
    for (const state of servers) {
      const attributes = { 'ringfence.engine': engine, 'ringfence.node': state.node }
      this.#seen.set(`${engine} ${state.node}`, { attributes, state })
    }
  }
}
