// A replica set or one server: MONGODB_URL=mongodb://127.0.0.1:27017 node examples/mongodb.mjs
import { MongoClient } from 'mongodb'
import { createLocks } from 'ringfence'
import { mongodb } from 'ringfence/mongodb'

const client = new MongoClient(process.env.MONGODB_URL)
const db = client.db('app')
const locks = createLocks(mongodb(db), { ttl: '10s', wait: '5s' })

const accounts = db.collection('accounts')
await locks.using('account:1', async (lease) => {
  // The store has the last word: an older holder's late write matches nothing, because a newer token is there.
  const mine = { _id: 'account:1', $or: [{ token: { $lte: lease.token } }, { token: { $exists: false } }] }
  await accounts.updateOne(mine, { $inc: { balance: 10 }, $set: { token: lease.token } }, { upsert: true })
})
console.log(`balance ${(await accounts.findOne({ _id: 'account:1' })).balance}`)

const lease = await locks.acquire(['account:1', 'account:2'])
console.log(`holding ${lease.resources.join(' and ')} with one token: ${lease.token}`)
console.log('another try gives', await locks.tryAcquire('account:2'))
console.log(`released while still mine: ${await lease.release()}`)

await locks.close() // your client stays open
await client.close()
