// What a lease costs a Redis: memory, commands, connections. REDIS_URL=redis://127.0.0.1:6379 node bench/sizing.mjs
// On an empty server, which it leaves with counters that end by themselves. Needs a build.
import { Redis } from 'ioredis'
import { createLocks } from '../dist/index.js'
import { redis } from '../dist/engines/redis/index.js'

const LEASES = 10_000
const admin = new Redis(process.env.REDIS_URL)
if ((await admin.dbsize()) > 0) throw new Error('expected an empty server')
const number = async (section, field) => Number(new RegExp(`${field}:(\\d+)`).exec(await admin.info(section))[1])
const memory = () => number('memory', 'used_memory')
const clients = () => number('clients', 'connected_clients')

const before = await clients()
const client = new Redis(process.env.REDIS_URL)
const locks = createLocks(redis(client), { ttl: '1h' })
await (await locks.acquire('first')).release()
const connections = (await clients()) - before

const name = (index) => `order:${String(index).padStart(6, '0')}`
const empty = await memory()
const leases = []
for (let index = 0; index < LEASES; index++) leases.push(await locks.acquire(name(index)))
const held = await memory()
await admin.config('RESETSTAT')
for (const lease of leases) await lease.release()
const left = await memory()
const calls = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info('commandstats'))[1])
const releases = await calls()
await admin.config('RESETSTAT')
for (let index = 0; index < 1000; index++) await (await locks.acquire(name(index))).release()

console.log(
  JSON.stringify({
    heldBytes: Math.round((held - empty) / LEASES),
    leftBytes: Math.round((left - empty) / LEASES),
    evalshaPerRelease: releases / LEASES,
    evalshaPerSection: (await calls()) / 1000,
    connections,
  }),
)
await locks.close()
client.disconnect()
admin.disconnect()
