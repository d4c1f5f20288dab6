// Many read a price list at the same time, and who changes it is alone: LOCK_FILE=/tmp/shop/locks.db node examples/shared.mjs
import { readFile } from 'node:fs/promises'
import { createLocks } from 'ringfence'
import { file } from 'ringfence/file'
import { fileGuard } from 'ringfence/guard'

const locks = createLocks(file(process.env.LOCK_FILE), { wait: '5s' })
const guard = fileGuard(process.env.LOCK_FILE)
const list = `${process.env.LOCK_FILE}.prices`

await locks.using('prices', (lease) => guard.replace(lease, list, 'tea 3'))

const ada = await locks.acquire('prices', { shared: true })
const bob = await locks.acquire('prices', { shared: true })
console.log(`both hold it: ${ada.held && bob.held}, with one token: ${ada.token === bob.token}`)
console.log('a writer gets', await locks.tryAcquire('prices'))
await ada.release()
await bob.release()

const paused = await locks.acquire('prices', { ttl: '100ms', renew: false })
// … this writer is stopped here for longer than its lease. Meanwhile:
await locks.using('prices', { shared: true }, async (lease) => {
  await guard.enter(lease) // before the first read: from here on, a writer that came before is refused
  console.log(`the reader sees ${await readFile(list, 'utf8')}`)
  // … and now the writer goes on, as if nothing had happened.
  await guard.replace(paused, list, 'tea 1').catch((error) => console.log(`refused: ${error.code}`))
  console.log(`the reader still sees ${await readFile(list, 'utf8')}`)
})

await locks.close()
await guard.close()
