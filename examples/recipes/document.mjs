// One document of MongoDB, without a lock: MONGODB_URL=mongodb://127.0.0.1:27017 node examples/recipes/document.mjs
import { MongoClient } from 'mongodb'

const client = await MongoClient.connect(process.env.MONGODB_URL)
const db = client.db('recipes')
const [seats, stock] = [db.collection('seats'), db.collection('stock')]
await Promise.all([seats.deleteMany({}), stock.deleteMany({})])
await seats.createIndex({ show: 1, seat: 1 }, { unique: true }) // without it, all of them get the seat

/** A thing that exists at most once: the unique index decides. */
async function reserve(show, seat, guest) {
  try {
    await seats.insertOne({ show, seat, guest })
    return true
  } catch (error) {
    if (error.code === 11000) return false // duplicate key
    throw error
  }
}

/** Look and change in one step: the filter has the condition. Null if nothing was left. */
const take = (item, by) =>
  stock.findOneAndUpdate(
    { _id: item, left: { $gte: 1 } },
    { $inc: { left: -1 }, $push: { takers: by } },
    { returnDocument: 'after' },
  )

await stock.insertOne({ _id: 'espresso', left: 3, takers: [] })
const guests = ['ada', 'bob', 'cem', 'dan', 'eve']
const reserved = await Promise.all(guests.map((guest) => reserve('hamlet', 'A1', guest)))
const taken = await Promise.all(guests.map((guest) => take('espresso', guest)))
const { left, takers } = await stock.findOne({ _id: 'espresso' })
console.log(`${reserved.filter(Boolean).length} of 5 has the seat`)
console.log(`${taken.filter((after) => after !== null).length} of 5 got one, ${left} left, ${takers.length} takers`)
await client.close()
