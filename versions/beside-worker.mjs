// A process with the ringfence of one commit, which does what it is told. RINGFENCE_TREE is the folder of that commit, built.
import { appendFileSync, closeSync, openSync, unlinkSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

const { RINGFENCE_TREE, RINGFENCE_CONNECTOR, RINGFENCE_NAME, RINGFENCE_INSIDE, RINGFENCE_LOG } = process.env

const { connect } = await import(`${RINGFENCE_TREE}/test/process/connect/${RINGFENCE_CONNECTOR}.mjs`)
const { createLocks } = await import(`${RINGFENCE_TREE}/dist/index.cjs`)
const engine = await connect()
const locks = createLocks(engine, { wait: '60s', ttl: '10s', label: RINGFENCE_NAME })

const deeds = {
  async init() {
    await engine.init?.()
  },
  async sections({ count }) {
    for (let index = 0; index < count; index++) await locks.using('order', section)
  },
  async handOff() {
    const lease = await locks.acquire('moved')
    return { token: String(lease.token), ticket: await lease.handOff() }
  },
  async adopt({ ticket }) {
    const lease = await locks.adopt(ticket)
    const token = String(lease.token)
    return { token, released: await lease.release() }
  },
  close: () => locks.close(),
}

/** Fails where somebody else is inside. */
async function section({ token }) {
  closeSync(openSync(RINGFENCE_INSIDE, 'wx'))
  appendFileSync(RINGFENCE_LOG, `${RINGFENCE_NAME} ${token}\n`)
  await pause(1)
  unlinkSync(RINGFENCE_INSIDE)
}

async function answer({ deed, ...what }) {
  try {
    process.send({ done: deed, ...(await deeds[deed](what)) })
  } catch (error) {
    process.send({ failed: deed, message: `${error.stack} ${error.cause ?? ''}` })
  }
}

process.on('message', (message) => void answer(message))
process.send({ done: 'start' })
