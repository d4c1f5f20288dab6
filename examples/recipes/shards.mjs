// One writer a shard, by consistent hashing, with a lease for the moment in which two believe to be it:
// REDIS_URL=redis://127.0.0.1:6379 node examples/recipes/shards.mjs
import { createHash } from 'node:crypto'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redisGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const guard = redisGuard(client)
const SHARDS = Array.from({ length: 64 }, (_, shard) => `shard:${shard}`)

const weight = (text) => createHash('sha256').update(text).digest().readUInt32BE()
/** The shard of a key never changes. */
const shardOf = (key) => SHARDS[weight(key) % SHARDS.length]
/** The member with the greatest weight has the shard (rendezvous hashing). When members come or go, no other shards move. */
const writerOf = (shard, members) =>
  members.reduce((best, member) => (weight(`${member} ${shard}`) > weight(`${best} ${shard}`) ? member : best))

/** Called by the writer of a shard, as it sees it. All writes of the shard go by its lease; `lease.release()` gives it on. */
async function lead(member, shard) {
  const locks = createLocks(redis(client), { label: member, ttl: '10s' })
  const lease = await locks.acquire(shard, { wait: '20s' }) // the holder before ends first, or its lease does
  await guard.enter(lease)
  return { lease, locks, write: (key, value) => guard.set(lease, `{${shard}}:${key}`, value) }
}

const owners = (members) => SHARDS.map((shard) => writerOf(shard, members))
const [before, after] = [owners(['ada', 'bob']), owners(['ada', 'bob', 'cem'])]
const moved = after.filter((owner, shard) => owner !== before[shard])
console.log(`cem joins: ${moved.length} of 64 shards move, all to cem: ${moved.every((owner) => owner === 'cem')}`)

// bob has not heard of cem yet, and both believe to be the writer of this key.
const shard = shardOf('customer:42')
const bob = await lead('bob', shard)
await bob.write('customer:42', 'by bob')
await bob.locks.forceRelease(shard, { token: bob.lease.token }) // as if bob stood still for longer than its lease
const cem = await lead('cem', shard)
await cem.write('customer:42', 'by cem')
console.log(`bob writes: ${await bob.write('customer:42', 'late').catch((error) => error.code)}`)
console.log(await client.get(`{${shard}}:customer:42`))
for (const { locks } of [bob, cem]) await locks.close()
client.disconnect()
