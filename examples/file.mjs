// Several processes of one machine, without any server: node examples/file.mjs & node examples/file.mjs
import { createLocks } from 'ringfence'
import { file } from 'ringfence/file'

// Without a path: ~/.local/state/ringfence/locks.db, one for each user.
const locks = createLocks(file(process.env.LOCK_FILE), { ttl: '30s', wait: '10s' })

await locks.using('backup', async (lease) => {
  console.log(`backup with token ${lease.token}`)
  // … if this process crashes here, the next one gets in at once and not after 30 s.
  lease.assertHeld()
  console.log('backup done')
})
await locks.close()
