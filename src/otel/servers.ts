import type { Attributes, MeterProvider } from '@opentelemetry/api'
import type { LockEvent } from '../events.ts'
import { onePerProvider, SCOPE } from './levels.ts'

type ProbedServer = Extract<LockEvent, { type: 'probed' }>['servers'][number]

interface Seen {
  readonly attributes: Attributes
  readonly state: ProbedServer
}

/**
 * What each server said when it was last asked. Nothing is asked for the metrics themselves: they are read from the event of
 * `locks.probe()` and `locks.check()`.
 */
export class Servers {
  readonly #seen = new Map<string, Seen>()

  static readonly of = onePerProvider((provider) => new Servers(provider))

  constructor(provider: MeterProvider) {
    const meter = provider.getMeter(SCOPE)
    type Read = (state: ProbedServer) => number | undefined
    const show = (kind: 'Gauge' | 'Counter', name: string, unit: string, description: string, read: Read): void => {
      const instrument = meter[`createObservable${kind}`](`ringfence.server.${name}`, { unit, description })
      instrument.addCallback((result) => {
        for (const { attributes, state } of this.#seen.values()) {
          const number = read(state)
          if (number !== undefined) result.observe(number, attributes)
        }
      })
    }
    const up = 'Whether a server answered when it was last asked: 1, or 0.'
    show('Gauge', 'up', '1', up, ({ error }) => (error === undefined ? 1 : 0))
    const ahead = 'How far the clock of a server is ahead of ours.'
    show('Gauge', 'clock_offset', 's', ahead, ({ clockOffsetMs: ms }) => (ms === undefined ? undefined : ms / 1000))
    const used = 'Memory that the data of a server takes.'
    show('Gauge', 'memory.used', 'By', used, ({ memory }) => memory?.usedBytes)
    const limit = 'The most that the data of a server may take.'
    show('Gauge', 'memory.limit', 'By', limit, ({ memory }) => memory?.limitBytes)
    const evictions = 'Keys that a server has removed to make room.'
    show('Counter', 'evictions', '{key}', evictions, ({ memory }) => memory?.evictedKeys)
  }

  heard(engine: string, servers: readonly ProbedServer[]): void {
    for (const state of servers) {
      const attributes = { 'ringfence.engine': engine, 'ringfence.node': state.node }
      this.#seen.set(`${engine} ${state.node}`, { attributes, state })
    }
  }
}
