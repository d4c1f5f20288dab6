import { fork } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { percentiles, perSection } from './measure.mjs'
import { counts, emptyServers, resetCounts } from './servers.mjs'

/** @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set()
process.on('exit', stopWorkers)

export function stopWorkers() {
  for (const child of running) child.kill('SIGKILL')
  running.clear()
}

/** Did not finish in the time it had. */
class OutOfTime extends Error {}

/** Processes that compete by means of one library, on the same servers. */
export class Contest {
  /** @type {Worker[]} */
  #workers = []
  #races = 0

  static async open(library, servers, processes) {
    const contest = new Contest(library, servers)
    contest.#workers = Array.from({ length: processes }, () => new Worker())
    const ports = servers.map(({ port }) => port)
    await contest.#all('open', { library: library.name, ports }, 20_000)
    return contest
  }

  constructor(library, servers) {
    this.library = library
    this.servers = servers
  }

  /** Optimised code and warm connections, before anything counts. */
  async warmUp(ms) {
    await this.#all('uncontended', { ms, tag: `warm:${this.library.name}` }, ms + 20_000)
  }

  /** The rate of one process alone. */
  async uncontended(ms) {
    const [first] = this.#workers
    return first.ask('uncontended', { ms, tag: `free:${this.library.name}` }, ms + 20_000)
  }

  /** All processes at once, so many waiters each, one section each. */
  async race(waiters, boundMs) {
    await emptyServers(this.servers)
    await resetCounts(this.servers)
    const resource = `race:${this.#races++}`
    const startAtMs = nowMs() + 30
    try {
      const sections = await this.#all('race', { resource, waiters, startAtMs }, boundMs)
      await sleep(10)
      const calls = await counts(this.servers)
      return { ...figures(sections), ...perSection(this.library, calls, sections.flat().length) }
    } catch (error) {
      if (!(error instanceof OutOfTime)) throw error
      const sections = this.#workers.reduce((sum, worker) => sum + worker.progress, 0)
      const unfinished = { sections, of: waiters * this.#workers.length, ms: boundMs }
      // It may hold anything now; the process is of no further use.
      this.close()
      return { unfinished }
    }
  }

  close() {
    for (const worker of this.#workers) worker.stop()
    this.#workers = []
  }

  get isOpen() {
    return this.#workers.length > 0
  }

  #all(task, plan, boundMs) {
    return Promise.all(this.#workers.map((worker) => worker.ask(task, plan, boundMs)))
  }
}

class Worker {
  progress = 0
  #child = fork(new URL('worker.mjs', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })

  constructor() {
    running.add(this.#child)
    this.#child.once('exit', () => running.delete(this.#child))
  }

  ask(task, plan, boundMs) {
    this.progress = 0
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => settle(() => reject(new OutOfTime(`${task}: no answer in ${boundMs} ms`))),
        boundMs,
      )
      const settle = (how) => {
        clearTimeout(timer)
        this.#child.off('message', heard)
        this.#child.off('exit', died)
        how()
      }
      const heard = ({ answer, error, progress }) => {
        if (progress !== undefined) this.progress = progress
        else if (error !== undefined) settle(() => reject(new Error(error)))
        else settle(() => resolve(answer))
      }
      const died = (code, signal) => settle(() => reject(new Error(`a worker died: ${signal ?? code}`)))
      this.#child.on('message', heard)
      this.#child.on('exit', died)
      this.#child.send({ task, plan })
    })
  }

  stop() {
    this.#child.kill('SIGKILL')
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
