// Why a token: a paused holder wakes up late, and the store, not the lock, stops it.
import { createLocks } from 'ringfence'
import { memory } from 'ringfence/memory'

const store = { value: 'empty', token: 0n }
function write(value, token) {
  if (token < store.token) return `${value}: rejected, ${token} < ${store.token}`
  Object.assign(store, { value, token })
  return `${value}: written with token ${token}`
}

const locks = createLocks(memory(), { wait: '5s' })
const paused = await locks.acquire('inventory', { ttl: '100ms', renew: false })
// … the process is stopped here for longer than its lease. Meanwhile:
const next = await locks.acquire('inventory')
console.log(write('new stock', next.token))
// … and now it goes on, as if nothing had happened.
console.log(`paused one still holds: ${paused.held}`)
console.log(write('old stock', paused.token))
await locks.close()
