// ZooKeeper: ZOOKEEPER_SERVERS=a:2181,b:2181,c:2181 node examples/zookeeper.mjs
import * as driver from 'node-zookeeper-client'
import { createLocks } from 'ringfence'
import { zookeeper } from 'ringfence/zookeeper'

const auth = { scheme: 'digest', auth: 'orders:secret' }
const connect = () => createLocks(zookeeper(driver, process.env.ZOOKEEPER_SERVERS, { auth, maxTtl: '10s' }))
const [one, two] = [connect(), connect()] // as two processes would

const first = await one.acquire(['account:1', 'account:2'])
const waiting = two.acquire('account:1', { wait: '5s' }) // waits in the servers' own queue
console.log(`valid for ${first.remaining() > 9000}`)
console.log(`released while still mine: ${await first.release()}`)

const second = await waiting
console.log(`the next one has a greater token: ${second.token > first.token}`)
await Promise.all([one.close(), two.close()]) // releases, and ends the sessions
