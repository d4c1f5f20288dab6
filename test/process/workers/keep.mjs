// Acquires a lease and keeps it until the process is killed.
import { createLocks } from '../../../dist/index.cjs'

const [connector, ttlMs, kind] = process.argv.slice(2)
const { connect } = await import(`../connect/${connector}.mjs`)
const locks = createLocks(await connect(), { ttl: Number(ttlMs) })
const lease = await locks.acquire('trial', { wait: '30s', shared: kind === 'shared' })
process.send({ type: 'acquired', token: String(lease.token) })
// eslint-disable-next-line no-empty-function -- keeps the process alive
setInterval(() => {}, 60_000)
