import { MongoClient } from 'mongodb'
import { mongodbGuard } from '../../../dist/guards/index.cjs'

const next = (balance, { token }) => ({ $set: { balance }, $push: { tokens: String(token) } })

export async function open() {
  const client = await new MongoClient(process.env.MONGODB_URL, { maxPoolSize: 3 }).connect()
  const db = client.db('bank')
  const accounts = db.collection('accounts')
  const guard = mongodbGuard(db)
  const documents = guard.documents(accounts)
  return {
    async create(account) {
      await accounts.insertOne({ _id: account, balance: 0, tokens: [] })
    },
    async transaction(lease, between) {
      const [_id] = lease.resources
      await guard.enter(lease)
      const { balance } = await accounts.findOne({ _id })
      await between()
      await guard.transaction(lease, (session) => accounts.updateOne({ _id }, next(balance + 1, lease), { session }))
    },
    async inside(lease, between) {
      const [_id] = lease.resources
      await guard.transaction(lease, async (session) => {
        const { balance } = await accounts.findOne({ _id }, { session })
        await between()
        await accounts.updateOne({ _id }, next(balance + 1, lease), { session })
      })
    },
    async documents(lease, between) {
      const [_id] = lease.resources
      const { balance } = await documents.enter(lease, { _id })
      await between()
      await documents.update(lease, { _id }, next(balance + 1, lease))
    },
    async unguarded(lease, between) {
      const [_id] = lease.resources
      const { balance } = await accounts.findOne({ _id })
      await between()
      await accounts.updateOne({ _id }, next(balance + 1, lease))
    },
    isEnded: (error) => error.codeName === 'NoSuchTransaction',
    async result(account) {
      const { balance, tokens } = await accounts.findOne({ _id: account })
      return { balance, tokens }
    },
  }
}
