/**
 * What the core needs of the runtime and not every runtime has. Node, Bun and Deno hand out their modules by
 * `getBuiltinModule`; browsers have none, and nothing here is an `import` that a bundler for them would stumble over.
 */
const node = (globalThis as { process?: NodeJS.Process }).process
const builtin = node?.getBuiltinModule?.bind(node)

/** Where this code runs, for people: a label of leases. */
export function placeName(): string {
  const os = builtin?.('node:os')
  return os === undefined || node === undefined ? 'browser' : `${os.hostname()}:${node.pid}`
}

/** What Node knows of the code around a call; undefined where there is no such thing. */
export function asyncStorage<T>(): import('node:async_hooks').AsyncLocalStorage<T> | undefined {
  const hooks = builtin?.('node:async_hooks')
  return hooks && new hooks.AsyncLocalStorage<T>()
}

export const hasAsyncStorage = builtin !== undefined

/** The event by which errors of an emitter can be observed without being handled. */
export const errorMonitor: symbol | undefined = builtin?.('node:events').errorMonitor

/** Undefined in browsers. Called when there is something to draw: Node takes milliseconds to load it, and a command that only looks needs none. */
export function nodeCrypto(): typeof import('node:crypto') | undefined {
  return builtin?.('node:crypto')
}

export function warn(text: string, code: string): void {
  if (builtin === undefined) console.warn(`RingfenceWarning [${code}]: ${text}`)
  else node!.emitWarning(text, { type: 'RingfenceWarning', code })
}

const hasBuffer = typeof Buffer !== 'undefined'

/** How long a text is in UTF-8. */
export function byteLength(text: string): number {
  return hasBuffer ? Buffer.byteLength(text) : new TextEncoder().encode(text).length
}

/** Calls back when no microtask is left, in the order of the calls. */
export const nextTick: (callback: () => void) => void = node?.nextTick?.bind(node) ?? messages()

/** A message is a task of its own, before which all microtasks have had their turn. All that wait are called in one, as in Node. */
function messages(): (callback: () => void) => void {
  const waiting: (() => void)[] = []
  let wake: (() => void) | undefined
  const callAll = (): void => {
    try {
      for (let callback = waiting.shift(); callback !== undefined; callback = waiting.shift()) callback()
    } finally {
      // One of them threw: the others are called nevertheless.
      if (waiting.length > 0) wake!()
    }
  }
  return (callback) => {
    if (wake === undefined) {
      const channel = new MessageChannel()
      const inbox = channel.port1 as unknown as { addEventListener: EventTarget['addEventListener']; start(): void }
      inbox.addEventListener('message', callAll)
      inbox.start()
      const { port2 } = channel
      wake = () => port2.postMessage(0)
    }
    if (waiting.push(callback) === 1) wake()
  }
}
