// node --expose-gc bench/leaks.mjs
// What 100,000 acquisitions leave behind on the heap, and what a held lease costs, on one Redis.
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, ringfence } from './libraries.mjs'
import { TTL_MS } from './measure.mjs'
import { startServers, stopServers } from './servers.mjs'

const SECTIONS = 100_000
const HELD = 10_000
/** Above that it is not noise: 100,000 sections that leave 10 bytes each. */
const MOST_GROWTH_BYTES = 1_000_000
const MOST_LEASE_BYTES = 2_048

if (globalThis.gc === undefined) throw new Error('run it with node --expose-gc')

try {
  const servers = await startServers(1)
  const clients = await connect(servers.map(({ port }) => port))
  const lock = await ringfence.open(clients)
  await sections(lock, SECTIONS / 5)
  const before = await heapBytes()
  await sections(lock, SECTIONS)
  const growth = (await heapBytes()) - before
  verdict(`${SECTIONS} sections leave ${growth} bytes on the heap`, growth, MOST_GROWTH_BYTES)

  const empty = await heapBytes()
  const leases = []
  for (let i = 0; i < HELD; i += 500) {
    const names = Array.from({ length: 500 }, (_, j) => `held:${i + j}`)
    leases.push(...(await Promise.all(names.map((name) => lock.acquire(name, TTL_MS)))))
  }
  const bytes = ((await heapBytes()) - empty) / HELD
  verdict(`a held lease costs ${Math.round(bytes)} bytes`, bytes, MOST_LEASE_BYTES)
  while (leases.length > 0) await Promise.all(leases.splice(0, 500).map((lease) => lock.release(lease)))
  await lock.close()
  for (const client of clients) client.disconnect()
} finally {
  await stopServers()
}

/** 64 at a time, each on names of its own, a thousand names in all. */
async function sections(lock, count) {
  let started = 0
  const work = async () => {
    while (started < count) {
      const handle = await lock.acquire(`leak:${started++ % 1_000}`, TTL_MS)
      await lock.release(handle)
    }
  }
  await Promise.all(Array.from({ length: 64 }, work))
}

/** Finalizers run between collections, and what they let go is only collected by the next one. */
async function heapBytes() {
  for (let i = 0; i < 4; i++) {
    globalThis.gc()
    await sleep(50)
  }
  return process.memoryUsage().heapUsed
}

function verdict(text, value, most) {
  const fine = value <= most
  process.stdout.write(`${fine ? '✓' : '✗'} ${text} (at most ${most})\n`)
  if (!fine) process.exitCode = 1
}
