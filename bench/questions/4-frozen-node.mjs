import { setTimeout as sleep } from 'node:timers/promises'
import { opened } from '../compare.mjs'
import { judged } from '../goals.mjs'
import { bare, ringfence } from '../libraries.mjs'
import { blocks, TTL_MS, warmUp } from '../measure.mjs'
import { againstBest } from '../ratios.mjs'
import { middle, percentiles, Rounds } from '../rounds.mjs'

/** Sections that show whether a library gets on at all without the fifth node. */
const TRIAL_SECTIONS = 40

/** Five nodes, one of them stopped (SIGSTOP): its connections stay open and nothing answers. */
export const frozenNode = {
  number: 4,
  title: 'five nodes, one of them frozen',
  async run({ servers, quick, waiting }) {
    const plan = quick
      ? { turns: 2, rounds: 6, boundMs: 700, warmMs: 200 }
      : { turns: 12, rounds: 25, boundMs: 3_000, warmMs: 1_500 }
    const { rows, healthy, frozen, rates } = await opened(servers.slice(0, 5), waiting, (entries) =>
      measured(entries, servers[4], plan),
    )
    const before = healthy.of(ringfence.name)
    const slowdown = middle(frozen.of(ringfence.name).map((p50, turn) => p50 / before[turn]))
    return {
      tables: [
        { title: '', columns: COLUMNS, rows, rounds: rates },
        { title: 'p50 with all healthy', columns: [], rows: [], rounds: healthy },
        { title: 'p50 with one frozen', columns: [], rows: [], rounds: frozen },
      ],
      goals: judged(4, {
        '4-healthy': { base: 'itself', ...slowdown },
        '4-peer': againstBest({ rows, rounds: rates }),
      }),
    }
  },
}

const COLUMNS = [
  { key: 'library', title: '' },
  { key: 'perSecond', title: 'sections/s', digits: 0 },
  { key: 'frozenMs', title: 'frozen p50 ms', digits: 3 },
  { key: 'frozenP99Ms', title: 'p99 ms', digits: 3 },
  { key: 'healthyMs', title: 'healthy p50 ms', digits: 3 },
  { key: 'slowdown', title: 'frozen to healthy', ratio: true },
  { key: 'note', title: '' },
]

/** Healthy and frozen in turns, in each of them blocks of all variants in turns: all see the same machine. */
async function measured(entries, node, { turns, rounds, boundMs, warmMs }) {
  for (const { lock, tag } of entries) await warmUp(lock, { tag, atMostMs: warmMs, sections: 2_000 })
  const stuck = await trials(entries, node, boundMs)
  const able = entries.filter((entry) => !stuck.has(entry))
  const names = able.map(({ name }) => name)
  const healthy = new Rounds('µs a section', names)
  const frozen = new Rounds('µs a section', names)
  const rates = new Rounds('sections a second', names)
  const all = { healthy: new Map(able.map((entry) => [entry, []])), frozen: new Map(able.map((entry) => [entry, []])) }
  for (let turn = 0; turn < turns; turn++) {
    const before = await several(able, rounds)
    const during = await whileFrozen(node, () => several(able, rounds))
    healthy.add(byName(before, (ms) => percentiles(ms).p50Ms * 1000))
    frozen.add(byName(during, (ms) => percentiles(ms).p50Ms * 1000))
    rates.add(byName(during, perSecond))
    for (const entry of able) {
      all.healthy.get(entry).push(...before.get(entry))
      all.frozen.get(entry).push(...during.get(entry))
    }
  }
  const rows = entries.map((entry) => {
    const note = stuck.get(entry)
    if (note !== undefined) return { library: entry.name, note }
    const { p50Ms: healthyMs } = percentiles(all.healthy.get(entry))
    const { p50Ms: frozenMs, p99Ms: frozenP99Ms } = percentiles(all.frozen.get(entry))
    const rate = middle(rates.of(entry.name)).value
    return { library: entry.name, perSecond: rate, frozenMs, frozenP99Ms, healthyMs, slowdown: frozenMs / healthyMs }
  })
  return { rows, healthy, frozen, rates }
}

/** Who does not get on without the node, and how far it came. */
async function trials(entries, node, boundMs) {
  const stuck = new Map()
  for (const entry of entries) {
    const done = await whileFrozen(node, () => some(entry, TRIAL_SECTIONS, boundMs))
    if (done === TRIAL_SECTIONS) continue
    const note = `did not finish: ${done} of ${TRIAL_SECTIONS} sections in ${boundMs / 1000} s`
    stuck.set(entry, entry.library === bare ? `${note}, since it waits for all` : note)
  }
  return stuck
}

async function whileFrozen(node, work) {
  node.freeze()
  try {
    return await work()
  } finally {
    node.thaw()
    await node.control.ping()
    // What has piled up at the node.
    await sleep(100)
  }
}

async function several(entries, rounds) {
  const sums = new Map(entries.map((entry) => [entry, []]))
  for (let round = 0; round < rounds; round++) {
    for (const [entry, ms] of await blocks(entries)) sums.get(entry).push(...ms)
  }
  return sums
}

function byName(took, figure) {
  return new Map([...took].map(([{ name }, ms]) => [name, figure(ms)]))
}

function perSecond(ms) {
  return (ms.length / ms.reduce((sum, each) => sum + each, 0)) * 1000
}

/** Sections one after the other, as many as there is time for. */
async function some({ lock, tag }, sections, boundMs) {
  const until = performance.now() + boundMs
  for (let done = 0; done < sections; done++) {
    const section = lock.acquire(`${tag}:trial:${done}`, TTL_MS).then((handle) => lock.release(handle))
    if (!(await inTime(section, until - performance.now()))) return done
  }
  return sections
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
