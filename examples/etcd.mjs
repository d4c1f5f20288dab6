// An etcd cluster: ETCD_URLS=http://127.0.0.1:2379,http://127.0.0.1:22379 node examples/etcd.mjs
import { createLocks } from 'ringfence'
import { etcd } from 'ringfence/etcd'

const endpoints = process.env.ETCD_URLS.split(',') // all members: when one does not answer, the next one is asked
const here = createLocks(etcd(endpoints), { ttl: '10s' })
const elsewhere = createLocks(etcd(endpoints), { ttl: '10s' }) // as in another process

const lease = await here.acquire('report:daily')
const next = elsewhere.acquire('report:daily', { wait: '5s' }) // takes a place in etcd's own queue
console.log('released while still mine:', await lease.release())

const second = await next
console.log('the next one got in, with a greater token:', second.token > lease.token)
await elsewhere.close() // releases it
await here.close()
