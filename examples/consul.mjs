// Consul, through an agent: CONSUL_URL=http://127.0.0.1:8500 node examples/consul.mjs
import { createLocks } from 'ringfence'
import { consul } from 'ringfence/consul'

// Consul's sessions last at least ten seconds, unless session_ttl_min on its servers says otherwise.
const locks = createLocks(consul(process.env.CONSUL_URL), { ttl: '10s' })

await locks.using(['account:1', 'account:2'], async (lease) => {
  console.log('holding both, with one token:', typeof lease.token)
  for await (const { resource, owner } of locks.inspect()) console.log(`${resource} is mine: ${owner === lease.owner}`)
})
console.log('free again:', (await (await locks.tryAcquire('account:1'))?.release()) === true)
await locks.close()
