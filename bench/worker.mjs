// A process that competes for locks: started by contest.mjs, told what to do by messages.
import { connect, libraryNamed } from './libraries.mjs'
import { TTL_MS, uncontended } from './measure.mjs'

/** @type {import('./libraries.mjs').Lock} */
let lock

const tasks = {
  async open({ library, ports }) {
    lock = libraryNamed(library).open(await connect(ports))
  },

  uncontended: (plan) => uncontended(lock, plan),

  /** Everyone asks at once, everyone gets one section. Times are of the machine's monotonic clock, the same in all processes. */
  async race({ resource, waiters, startAtMs }) {
    await until(startAtMs)
    const one = async () => {
      const askedMs = nowMs()
      const handle = await lock.acquire(resource, TTL_MS)
      const grantedMs = nowMs()
      await lock.release(handle)
      const section = { askedMs, grantedMs, releasedMs: nowMs() }
      // Told one by one, so that of a library that does not finish we know how far it came.
      done.push(section)
      return section
    }
    const done = []
    const telling = setInterval(() => process.send?.({ progress: done.length }), 100)
    try {
      return await Promise.all(Array.from({ length: waiters }, one))
    } finally {
      clearInterval(telling)
    }
  },
}

process.on('message', async ({ task, plan }) => {
  try {
    process.send?.({ answer: await tasks[task](plan) })
  } catch (error) {
    process.send?.({ error: String(error?.stack ?? error) })
  }
})
// The parent is gone: so are we.
process.on('disconnect', () => process.exit())

function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6
}

/** Timers are late by a millisecond or so; the last bit is spun away, so that all processes start together. */
async function until(atMs) {
  await new Promise((resolve) => {
    setTimeout(resolve, Math.max(0, atMs - nowMs() - 3))
  })
  while (nowMs() < atMs);
}
