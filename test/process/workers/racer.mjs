// Enters the critical section again and again. The folder `inside` exists while someone is in it: to make it twice fails.
import { appendFileSync, mkdirSync, rmdirSync } from 'node:fs'
import { createLocks } from '../../../dist/index.js'

const [connector, ttlMs, folder, rounds] = process.argv.slice(2)
const { connect } = await import(`../connect/${connector}.mjs`)
const locks = createLocks(await connect(), { ttl: Number(ttlMs) })
process.send({ type: 'ready' })
await new Promise((resolve) => process.once('message', resolve))
for (let round = 0; round < Number(rounds); round++) {
  await locks.using('race', { wait: '100s' }, (lease) => {
    mkdirSync(`${folder}/inside`)
    appendFileSync(`${folder}/log`, `${process.pid} ${lease.token}\n`)
    rmdirSync(`${folder}/inside`)
  })
}
await locks.close()
process.send({ type: 'done' })
process.disconnect()
