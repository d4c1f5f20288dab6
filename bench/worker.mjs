// A process that uses locks: started by child.mjs, told what to do by messages.
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { serve } from './child.mjs'
import { connect, libraryOf } from './libraries.mjs'
import { sectionsOf, TTL_MS, uncontended } from './measure.mjs'
import { percentiles } from './rounds.mjs'

/** A race that was told to end waits this long for those who are about to give up. */
const FAREWELL_MS = 1_000

/** By library. @type {Map<string, import('./libraries.mjs').Lock>} */
const locks = new Map()
/** How to let go of what is held. @type {(() => Promise<unknown>)[]} */
const held = []
let stop = new AbortController()

serve({
  async open({ library, ports }) {
    locks.set(key(library), await libraryOf(library).open(await connect(ports)))
    return 'open'
  },

  uncontended: ({ library, ms }) =>
    uncontended(locks.get(key(library)), { ms, tag: `free:${process.pid}:${library.name}` }),

  /** The first sections of this process. */
  async first({ library, ports, sections }) {
    const lock = await libraryOf(library).open(await connect(ports))
    const tookMs = await sectionsOf(lock, sections, `first:${process.pid}`)
    const sumMs = tookMs.reduce((sum, ms) => sum + ms, 0)
    return { perSecond: (sections / sumMs) * 1000, firstMs: tookMs[0], ...percentiles(tookMs) }
  },

  /** What they cost this process, in µs a section. */
  async firstCost({ library, ports, sections }) {
    const lock = await libraryOf(library).open(await connect(ports))
    const [before, began] = [process.cpuUsage(), performance.now()]
    await sectionsOf(lock, sections, `first:${process.pid}`)
    const { user, system } = process.cpuUsage(before)
    const tookUs = (performance.now() - began) * 1000
    const figures = { time: tookUs, 'client CPU, user': user, 'client CPU, kernel': system }
    return { cost: Object.entries(figures).map(([name, us]) => [name, us / sections]) }
  },

  /** Where their time goes. */
  async firstSampled({ library, ports, sections }) {
    const { sampled } = await import('./sampling.mjs')
    const lock = await libraryOf(library).open(await connect(ports))
    const { places, functions } = await sampled(async () => {
      await sectionsOf(lock, sections, `first:${process.pid}`)
      return sections
    }, 100)
    return { places: [...places], functions: [...functions] }
  },

  /** Everyone asks at once, everyone gets one section. Times are of the machine's monotonic clock, the same in all processes. */
  async race({ library, resource, waiters, startAtMs }) {
    const lock = locks.get(key(library))
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
    const outcomes = await Promise.race([
      Promise.allSettled(Array.from({ length: waiters }, one)),
      aborted(stop.signal).then(() => sleep(FAREWELL_MS, [])),
    ])
    const failure = outcomes.find(({ status, reason }) => status === 'rejected' && reason?.name !== 'AbortError')
    if (failure !== undefined) throw failure.reason
    return sections
  },

  stop: () => stop.abort(),

  /** Acquired over most of the first ttl, as in life, so that renewals are not all due at the same moment. */
  async hold({ library, ports, leases, ttlMs }) {
    const lock = await libraryOf(library).open(await connect(ports))
    const parts = 50
    for (let part = 0; part < parts; part++) {
      const names = Array.from({ length: leases / parts }, (_, i) => `held:${part}:${i}`)
      const began = performance.now()
      held.push(...(await Promise.all(names.map((name) => lock.hold(name, ttlMs)))))
      await sleep(Math.max(0, (ttlMs * 0.8) / parts - (performance.now() - began)))
    }
    return held.length
  },

  async promises(plan) {
    const { countHere } = await import('./promises.mjs')
    return countHere(plan)
  },

  /** CPU seconds a second that keeping them costs this process. */
  async keep({ ms }) {
    const [began, before] = [performance.now(), process.cpuUsage()]
    await sleep(ms)
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000 / (performance.now() - began)
  },
})

/** The same library can be there with several delays. */
function key({ name, retryMs }) {
  return `${name} ${retryMs}`
}

function aborted(signal) {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(undefined), { once: true })
  })
}

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
