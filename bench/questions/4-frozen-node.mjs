import { of, target } from '../compare.mjs'
import { bare, connect, libraries } from '../libraries.mjs'
import { percentiles, TTL_MS } from '../measure.mjs'
import { emptyServers } from '../servers.mjs'

/** Five nodes, one of them stopped (SIGSTOP): its connections stay open and nothing answers. */
export const frozenNode = {
  number: 4,
  title: 'five nodes, one of them frozen',
  async run({ servers, quick }) {
    const five = servers.slice(0, 5)
    const plan = { sections: quick ? 160 : 1_000, boundMs: quick ? 1_000 : 5_000 }
    const rows = []
    for (const library of libraries) rows.push({ library: library.name, ...(await measured(library, five, plan)) })
    const { healthyMs, frozenMs } = of(rows, 'ringfence')
    return {
      tables: [{ title: '', columns: COLUMNS, rows }],
      targets: [target('of its own p50 with all nodes healthy', frozenMs / healthyMs, { atMost: 1.3 })],
    }
  },
}

const COLUMNS = [
  { key: 'library', title: '' },
  { key: 'healthyMs', title: 'healthy p50 ms', digits: 3 },
  { key: 'frozenMs', title: 'frozen p50 ms', digits: 3 },
  { key: 'frozenP99Ms', title: 'frozen p99 ms', digits: 3 },
  { key: 'slowdown', title: 'frozen to healthy', ratio: true },
  { key: 'note', title: '' },
]

/** Healthy and frozen in turns, so that both see the same machine. */
async function measured(library, servers, { sections, boundMs }) {
  await emptyServers(servers)
  const clients = await connect(servers.map(({ port }) => port))
  const lock = library.open(clients)
  const last = servers[4]
  const healthy = []
  const frozen = []
  try {
    await some(lock, sections * 2, boundMs)
    for (let turn = 0; turn < 4; turn++) {
      healthy.push(...(await some(lock, sections / 4, boundMs)).tookMs)
      last.freeze()
      const { tookMs, finished } = await some(lock, sections / 4, boundMs)
      frozen.push(...tookMs)
      last.thaw()
      await last.control.ping()
      if (!finished) {
        const note = `did not finish: ${tookMs.length} of ${sections / 4} sections in ${boundMs / 1000} s`
        return {
          healthyMs: percentiles(healthy).p50Ms,
          note: library === bare ? `${note}, since it waits for all` : note,
        }
      }
    }
  } finally {
    last.thaw()
    for (const client of clients) client.disconnect()
    await lock.close()
  }
  const [{ p50Ms: healthyMs }, { p50Ms: frozenMs, p99Ms: frozenP99Ms }] = [percentiles(healthy), percentiles(frozen)]
  return { healthyMs, frozenMs, frozenP99Ms, slowdown: frozenMs / healthyMs }
}

/** Sections one after the other, as many as there is time for. */
async function some(lock, sections, boundMs) {
  const tookMs = []
  const until = performance.now() + boundMs
  while (tookMs.length < sections) {
    const start = performance.now()
    const section = lock.acquire(`frozen:${tookMs.length % 16}`, TTL_MS).then((handle) => lock.release(handle))
    if (!(await inTime(section, until - start))) return { tookMs, finished: false }
    tookMs.push(performance.now() - start)
  }
  return { tookMs, finished: true }
}

function inTime(work, ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), ms)
    // A library that gives up in time, with an error, has not managed either.
    work
      .then(
        () => resolve(true),
        () => resolve(false),
      )
      .finally(() => clearTimeout(timer))
  })
}
