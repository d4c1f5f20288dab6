interface Listeners {
  readonly callbacks: Set<() => void>
  readonly heard: () => void
}

const all = new WeakMap<AbortSignal, Listeners>()

/**
 * Calls back when the signal aborts. Returns a function that stops that. All callbacks of a signal share one listener: a
 * program may give one signal to all of its waits, and Node takes more than ten listeners for a leak.
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const listeners = all.get(signal) ?? listenTo(signal)
  // A new function each time, because the same callback may be given twice.
  const own = (): void => callback()
  listeners.callbacks.add(own)
  return () => {
    listeners.callbacks.delete(own)
    if (listeners.callbacks.size > 0 || all.get(signal) !== listeners) return
    all.delete(signal)
    signal.removeEventListener('abort', listeners.heard)
  }
}

function listenTo(signal: AbortSignal): Listeners {
  const callbacks = new Set<() => void>()
  const listeners = {
    callbacks,
    heard: () => {
      for (const callback of callbacks) callback()
    },
  }
  all.set(signal, listeners)
  signal.addEventListener('abort', listeners.heard, { once: true })
  return listeners
}
