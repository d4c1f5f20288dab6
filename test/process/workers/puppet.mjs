// Does with its locks what it is told, call by call, and answers how that went.
import { readdirSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs'
import { createLocks } from '../../../dist/index.cjs'

const [connector, ttlMs] = process.argv.slice(2)
const { connect } = await import(`../connect/${connector}.mjs`)
const engine = await connect()
const locks = createLocks(engine, { ttl: Number(ttlMs) })
const leases = new Map()

function kept(lease) {
  if (lease === null) return { granted: false }
  for (const resource of lease.resources) leases.set(resource, lease)
  return { granted: true, token: String(lease.token), atMs: Number(process.hrtime.bigint()) / 1e6 }
}

const calls = {
  acquire: async ({ resource, wait = '30s', shared = false }) => kept(await locks.acquire(resource, { wait, shared })),
  tryAcquire: async ({ resource, shared = false }) => kept(await locks.tryAcquire(resource, { shared })),
  turn: async ({ resource }) => locks.using(resource, { wait: '50s' }, (lease) => ({ token: String(lease.token) })),
  once: async ({ resource, atLeast }) => locks.once(resource, { atLeast }, () => undefined),
  onceForever: ({ resource, atLeast, ttl }) =>
    new Promise((resolve, reject) => {
      const job = () => new Promise(() => resolve({}))
      locks.once(resource, { atLeast, ttl }, job).catch(reject)
    }),
  release: async ({ resource }) => ({ ours: await leases.get(resource).release() }),
  extend: async ({ resource }) =>
    leases
      .get(resource)
      .extend(Number(ttlMs))
      .then(() => ({})),
  state: async ({ resource }) => {
    const { held, signal } = leases.get(resource)
    return { held, aborted: signal.aborted, reason: signal.reason?.reason }
  },
  check: async () => ({ findings: await engine.check(Number(ttlMs)) }),
  fill: async ({ path }) => {
    // All of the room there is; the last part of it in pieces too small for a page.
    for (let bytes = 65_536, text = ''; bytes >= 1;) {
      try {
        text += 'x'.repeat(bytes)
        writeFileSync(path, text)
      } catch {
        text = text.slice(bytes)
        bytes = Math.floor(bytes / 4)
      }
    }
    return { freeBlocks: statfsSync(path).bavail }
  },
  sizes: async ({ folder }) => ({
    sizes: Object.fromEntries(readdirSync(folder).map((name) => [name, statSync(`${folder}/${name}`).size])),
  }),
  remove: async ({ path }) => rmSync(path),
}

async function answer({ id, call, ...args }) {
  try {
    return { type: 'done', id, ...(await calls[call](args)) }
  } catch (error) {
    const { code, message, transient } = error
    return { type: 'failed', id, code, message, transient }
  }
}

process.on('message', (message) => void answer(message).then((reply) => process.send(reply)))
process.send({ type: 'ready' })
