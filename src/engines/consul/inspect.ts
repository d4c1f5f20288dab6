import type { LeaseInfo } from '../../engine.ts'
import type { ConsulEntry } from './client.ts'
import type { ConsulCall } from './engine.ts'
import { consulFailure } from './errors.ts'
import { keyOf, parseValue, resourceOf } from './keys.ts'

export async function* inspectConsul(call: ConsulCall, resource?: string): AsyncIterable<LeaseInfo> {
  for (const { key, value: text, session, createIndex } of await entriesOf(call, resource)) {
    const name = resourceOf(call.prefix, key)
    if (name === undefined) continue
    const value = parseValue(text)
    yield {
      resource: name,
      owner: value?.owner ?? 'unknown',
      token: createIndex,
      // The servers do not tell when a session was last renewed. This is the most, if they end it in time.
      remainingMs: session === undefined ? undefined : value?.ttlMs,
      // Compares the clocks of two machines, because there is no other way to know.
      ...(value === undefined ? {} : { heldMs: Math.max(0, call.clock.wallMs() - value.sinceMs) }),
    }
  }
}

async function entriesOf({ client, prefix, timeoutMs }: ConsulCall, resource?: string): Promise<ConsulEntry[]> {
  try {
    if (resource === undefined) return await client.readAll(prefix, timeoutMs)
    const entry = await client.read(keyOf(prefix, resource), timeoutMs)
    return entry === undefined ? [] : [entry]
  } catch (error) {
    throw consulFailure(error, resource === undefined ? [] : [resource])
  }
}
