// A function that takes its own lease, also when its caller has it already: node examples/reentrant.mjs
import { createLocks } from 'ringfence'
import { memory } from 'ringfence/memory'

const locks = createLocks(memory(), { reentrant: true })

const book = (account, amount) =>
  locks.using(`account:${account}`, async (lease) => {
    console.log(`${amount} on ${account}, token ${lease.token}`)
  })

await book('ada', 5) // takes a lease of its own
await locks.using(['account:ada', 'account:bob'], async () => {
  await book('ada', -20) // joins the lease of both accounts
  await book('bob', 20)
})
await locks.close()
