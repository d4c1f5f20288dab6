import timersPromises from 'node:timers/promises'
import type { Wire } from '../client.ts'
import type { Time } from '../clock.ts'
import type { Plan, RealDriver } from '../plan.ts'
import { run, type Outcome } from '../run.ts'

/** Loaded when they are needed: each takes longer than many a run. */
const WIRES: Readonly<Record<RealDriver, () => Promise<Wire>>> = {
  ioredis: async () => (await import('./ioredis.ts')).overIoredis,
  iovalkey: async () => (await import('./ioredis.ts')).overIovalkey,
  'node-redis': async () => (await import('./node-redis.ts')).overNodeRedis,
}

const { setTimeout, clearTimeout, setImmediate, clearImmediate } = globalThis
const { setTimeout: sleep } = timersPromises
const timeout = Object.getOwnPropertyDescriptor(AbortSignal, 'timeout')!

/** Streams settle by ticks and promises that follow each other: by the next turn of the event loop all have had theirs. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** Timers of drivers go by true time. They end with the run. */
class Timers {
  readonly #time: Time
  readonly #pending = new Set<object>()

  constructor(time: Time) {
    this.#time = time
  }

  install(): void {
    const begin = (callback: (...args: unknown[]) => void, delayMs = 0, ...args: unknown[]): object => {
      const timer = { ref: () => timer, unref: () => timer, hasRef: () => true, refresh: () => timer }
      this.#pending.add(timer)
      this.#time.after(Math.max(delayMs, 0), () => {
        if (!this.#pending.delete(timer)) return
        this.#time.touch()
        callback(...args)
      })
      return timer
    }
    const end = (timer: object): void => void this.#pending.delete(timer)
    const soon = (callback: (...args: unknown[]) => void, ...args: unknown[]): object => begin(callback, 0, ...args)
    Object.assign(globalThis, { setTimeout: begin, clearTimeout: end, setImmediate: soon, clearImmediate: end })
    const wait = (delayMs: number): Promise<void> => new Promise((resolve) => void begin(() => resolve(), delayMs))
    Object.assign(timersPromises, { setTimeout: wait })
    const abortsAfter = (delayMs: number): AbortSignal => {
      const controller = new AbortController()
      begin(
        () => controller.abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError')),
        delayMs,
      )
      return controller.signal
    }
    Object.assign(AbortSignal, { timeout: abortsAfter })
  }
}

/** Something is run with a real driver between the library and the servers; the driver's timers go by the time of that. */
export async function overSockets<T>(driver: RealDriver, body: (wire: Wire) => Promise<T>): Promise<T> {
  const over = await WIRES[driver]()
  let timed: Time | undefined
  const wire: Wire = (wiring) => {
    const { time } = wiring.network
    if (timed === undefined) {
      timed = time
      time.settle = turn
      new Timers(time).install()
    }
    return over(wiring)
  }
  try {
    return await body(wire)
  } finally {
    Object.assign(globalThis, { setTimeout, clearTimeout, setImmediate, clearImmediate })
    Object.assign(timersPromises, { setTimeout: sleep })
    Object.defineProperty(AbortSignal, 'timeout', timeout)
  }
}

/** Runs a plan with the driver that it names. */
export function runOverSockets(plan: Plan, driver: RealDriver): Promise<Outcome> {
  return overSockets(driver, (wire) => run(plan, wire))
}
