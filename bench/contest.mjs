import { setTimeout as sleep } from 'node:timers/promises'
import { Child } from './child.mjs'
import { perSection } from './measure.mjs'
import { percentiles } from './rounds.mjs'
import { counts, emptyServers, resetCounts } from './servers.mjs'

/** A library has not even ended its race when it was told to. */
const END_MS = 5_000

/** Processes that compete on the same servers, by means of one library after the other. */
export class Contest {
  #servers
  #workers
  #races = 0

  constructor(servers, processes) {
    this.#servers = servers
    this.#workers = Array.from({ length: processes }, () => new Child())
  }

  /** With optimised code and warm connections, before anything counts. */
  async open(library, warmMs) {
    const ports = this.#servers.map(({ port }) => port)
    await this.#all('open', { library, ports }, 30_000)
    await this.#all('uncontended', { library, ms: warmMs }, warmMs + 30_000)
  }

  /** The rate of one process alone. */
  uncontended(library, ms) {
    return this.#workers[0].ask('uncontended', { library, ms }, ms + 30_000)
  }

  /** All processes at once, this many waiters each, one section each. */
  async race(library, waiters, boundMs) {
    await emptyServers(this.#servers)
    await resetCounts(this.#servers)
    const plan = { library, resource: `race:${this.#races++}`, waiters, startAtMs: nowMs() + 20 }
    const timer = setTimeout(() => this.#stop(), boundMs)
    const sections = await this.#all('race', plan, boundMs + END_MS).finally(() => clearTimeout(timer))
    await sleep(10)
    const calls = await counts(this.#servers)
    const [had, of] = [sections.flat().length, waiters * this.#workers.length]
    if (had < of) return { unfinished: { sections: had, of, ms: boundMs }, perSecond: (had / boundMs) * 1000 }
    return { ...figures(sections), ...perSection(library, calls, had) }
  }

  close() {
    for (const worker of this.#workers) worker.kill()
  }

  #stop() {
    for (const worker of this.#workers) worker.tell({ task: 'stop' })
  }

  #all(task, plan, boundMs) {
    return Promise.all(this.#workers.map((worker) => worker.ask(task, plan, boundMs)))
  }
}

/** @param {{ askedMs: number, grantedMs: number, releasedMs: number }[][]} byProcess */
function figures(byProcess) {
  const all = byProcess.flatMap((sections, process) => sections.map((section) => ({ ...section, process })))
  all.sort((a, b) => a.grantedMs - b.grantedMs)
  const began = Math.min(...all.map(({ askedMs }) => askedMs))
  const ended = Math.max(...all.map(({ releasedMs }) => releasedMs))
  // The section itself is empty: a grant's distance to the grant before is what release, wake-up and next grant take.
  const gaps = all.slice(1).map(({ grantedMs }, i) => grantedMs - all[i].grantedMs)
  const { p50Ms, p99Ms } = percentiles(all.map(({ askedMs, grantedMs }) => grantedMs - askedMs))
  return {
    perSecond: (all.length / (ended - began)) * 1000,
    p50Ms,
    p99Ms,
    handOverMs: percentiles(gaps).p50Ms,
    shares: shares(all, byProcess),
  }
}

/** Sections of each process until the first process has had all of its own: from then on it no longer waits. */
function shares(all, byProcess) {
  const left = byProcess.map(({ length }) => length)
  const had = byProcess.map(() => 0)
  for (const { process } of all) {
    had[process]++
    if (--left[process] === 0) break
  }
  return had
}

function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6
}
