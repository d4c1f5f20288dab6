import type { Engine } from '../src/engine.ts'

/** The engine of another process over the same leases: an object of its own, as every `createLocks` needs one. */
export function viewOf(engine: Engine): Engine {
  return new Proxy(engine, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
