// Acquires a lease and keeps it. Told to look, it tells what it sees of its lease. Told to write, it does so without another
// look, as a process does that was stopped between its last look and its write.
import { Redis } from 'ioredis'
import { connectLocks } from './connect.mjs'

const { TTL_MS, STORE_PORT, STORE_SCRIPT } = process.env
const locks = await connectLocks({ ttl: Number(TTL_MS) })
const store = STORE_PORT === undefined ? undefined : new Redis({ host: '127.0.0.1', port: Number(STORE_PORT) })
await store?.ping()
const lease = await locks.acquire('order')
const { signal } = lease

process.on('message', ({ value }) => void (value === undefined ? look() : write(value)))

async function write(value) {
  const held = lease.held
  const accepted = await store.eval(STORE_SCRIPT, 1, 'order', value, String(lease.token))
  process.send({ type: 'written', held, accepted: accepted === 1 })
}

// The keeper's own timer, which was due while the process was stopped, comes at the latest with the next timers: the event
// loop may not have looked at the clock yet since the stop.
function look() {
  const first = { held: lease.held, remainingMs: lease.remaining() }
  setTimeout(() => process.send({ type: 'woken', ...first, aborted: signal.aborted, reason: signal.reason?.reason }), 1)
}

process.send({ type: 'acquired', token: String(lease.token) })
