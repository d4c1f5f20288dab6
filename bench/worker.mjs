// A process that competes for locks: started by contest.mjs, told what to do by messages.
import { setMaxListeners } from 'node:events'
import { connect, libraryNamed } from './libraries.mjs'
import { TTL_MS, uncontended } from './measure.mjs'

/** By library. @type {Map<string, import('./libraries.mjs').Lock>} */
const locks = new Map()
let stop = new AbortController()

const tasks = {
  async open({ library, ports }) {
    locks.set(library, libraryNamed(library).open(await connect(ports)))
  },

  uncontended: ({ library, ms }) => uncontended(locks.get(library), { ms, tag: `free:${process.pid}:${library}` }),

  /** Everyone asks at once, everyone gets one section. Times are of the machine's monotonic clock, the same in all processes. */
  async race({ library, resource, waiters, startAtMs }) {
    const lock = locks.get(library)
    stop = new AbortController()
    // One listener a waiter is what the pollers need.
    setMaxListeners(0, stop.signal)
    await until(startAtMs)
    const sections = []
    const one = async () => {
      const askedMs = nowMs()
      const handle = await lock.acquire(resource, TTL_MS, stop.signal)
      const grantedMs = nowMs()
      await lock.release(handle)
      sections.push({ askedMs, grantedMs, releasedMs: nowMs() })
    }
    const outcomes = await Promise.allSettled(Array.from({ length: waiters }, one))
    const failure = outcomes.find(({ status, reason }) => status === 'rejected' && reason?.name !== 'AbortError')
    if (failure !== undefined) throw failure.reason
    return sections
  },
}

process.on('message', (message) => void answer(message))

async function answer({ task, plan }) {
  // No answer: the race that it ends has one.
  if (task === 'stop') return stop.abort()
  try {
    process.send?.({ answer: await tasks[task](plan) })
  } catch (error) {
    process.send?.({ error: String(error?.stack ?? error) })
  }
}
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
