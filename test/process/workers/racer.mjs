// Enters the critical section again and again. The folder `inside` exists while someone is in it: to make it twice fails. The
// first one in stays until the other was refused, so that they do meet.
import { appendFileSync, existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { createLocks } from '../../../dist/index.cjs'

const [connector, ttlMs, folder, rounds] = process.argv.slice(2)
const { connect } = await import(`../connect/${connector}.mjs`)
const refused = `${folder}/refused`
const observe = ({ type }) => type === 'refused' && writeFileSync(refused, '')
const locks = createLocks(await connect(), { ttl: Number(ttlMs), observe })
process.send({ type: 'ready' })
await new Promise((resolve) => process.once('message', resolve))
for (let round = 0; round < Number(rounds); round++) {
  await locks.using('race', { wait: '100s' }, async (lease) => {
    mkdirSync(`${folder}/inside`)
    appendFileSync(`${folder}/log`, `${process.pid} ${lease.token}\n`)
    while (!existsSync(refused)) await setTimeout(5)
    rmdirSync(`${folder}/inside`)
  })
}
await locks.close()
process.send({ type: 'done' })
process.disconnect()
