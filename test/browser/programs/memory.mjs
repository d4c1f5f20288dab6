import { createLocks, HeldError } from 'ringfence'
import { memory } from 'ringfence/memory'

const locks = createLocks(memory())
const order = []
/** Two callers take turns, and the second one's token is greater. */
await Promise.all(
  ['first', 'second'].map((name) =>
    locks.using('order:42', async (lease) => {
      order.push(`${name} begins`)
      await new Promise((resolve) => setTimeout(resolve, 5))
      order.push(`${name} ends`)
      order.push(lease.token)
    }),
  ),
)
const reentrant = await locks.using('a', { reentrant: true }, () => 'ran').catch((error) => error.message)
const busy = await locks.using('a', () => locks.acquire('a', { wait: 0 })).catch((error) => error instanceof HeldError)
const owner = await locks.using('a', ({ owner }) => owner)
await locks.close()
globalThis.result = { order: order.map(String), reentrant, busy, owner }
