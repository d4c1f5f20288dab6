// Reads or writes again and again. Whoever is inside leaves a sign first, and then looks for the signs of those that it must not meet.
import { appendFileSync, existsSync, mkdirSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { createLocks } from '../../../dist/index.cjs'

const [connector, ttlMs, folder, rounds] = process.argv.slice(2)
const { connect } = await import(`../connect/${connector}.mjs`)
const locks = createLocks(await connect(), { ttl: Number(ttlMs) })
const [writer, readers] = [`${folder}/writer`, `${folder}/readers`]
mkdirSync(readers, { recursive: true })
process.send({ type: 'ready' })
await new Promise((resolve) => process.once('message', resolve))
for (let round = 0; round < Number(rounds); round++) {
  await (round % 3 === 0 ? write() : read(`${readers}/${process.pid}`))
}
await locks.close()
process.send({ type: 'done' })
process.disconnect()

async function write() {
  await locks.using('race', { wait: '100s' }, async (lease) => {
    mkdirSync(writer)
    const met = readdirSync(readers)
    if (met.length > 0) throw new Error(`a writer met the readers ${met.join()}`)
    appendFileSync(`${folder}/log`, `writer ${lease.token}\n`)
    await setTimeout(1)
    rmdirSync(writer)
  })
}

async function read(sign) {
  await locks.using('race', { shared: true, wait: '100s' }, async (lease) => {
    writeFileSync(sign, '')
    if (existsSync(writer)) throw new Error('a reader met a writer')
    appendFileSync(`${folder}/log`, `reader ${lease.token} ${readdirSync(readers).length}\n`)
    await setTimeout(3)
    rmSync(sign)
  })
}
