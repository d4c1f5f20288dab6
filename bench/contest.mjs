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

/** A library has not even ended its race when it was told to. */
const END_MS = 5_000

/** Processes that compete on the same servers, by means of one library after the other. */
export class Contest {
  #servers
  #workers
  #races = 0

  constructor(servers, processes) {
    this.#servers = servers
    this.#workers = Array.from({ length: processes }, () => new Worker())
  }

  /** With optimised code and warm connections, before anything counts. */
  async open(library, warmMs) {
    const ports = this.#servers.map(({ port }) => port)
    await this.#all('open', { library: library.name, ports }, 30_000)
    await this.#all('uncontended', { library: library.name, ms: warmMs }, warmMs + 30_000)
  }

  /** The rate of one process alone. */
  uncontended(library, ms) {
    return this.#workers[0].ask('uncontended', { library: library.name, ms }, ms + 30_000)
  }

  /** All processes at once, this many waiters each, one section each. */
  async race(library, waiters, boundMs) {
    await emptyServers(this.#servers)
    await resetCounts(this.#servers)
    const plan = { library: library.name, resource: `race:${this.#races++}`, waiters, startAtMs: nowMs() + 20 }
    const timer = setTimeout(() => this.#stop(), boundMs)
    const sections = await this.#all('race', plan, boundMs + END_MS)
    clearTimeout(timer)
    await sleep(10)
    const calls = await counts(this.#servers)
    const [had, of] = [sections.flat().length, waiters * this.#workers.length]
    if (had < of) return { unfinished: { sections: had, of, ms: boundMs } }
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

class Worker {
  #child = fork(new URL('worker.mjs', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })

  constructor() {
    running.add(this.#child)
    this.#child.once('exit', () => running.delete(this.#child))
  }

  tell(message) {
    this.#child.send(message)
  }

  ask(task, plan, boundMs) {
    return new Promise((resolve, reject) => {
      const settle = (how) => {
        clearTimeout(timer)
        this.#child.off('message', heard)
        this.#child.off('exit', died)
        how()
      }
      const heard = ({ answer, error }) =>
        settle(() => (error === undefined ? resolve(answer) : reject(new Error(error))))
      const died = (code, signal) => settle(() => reject(new Error(`a worker died: ${signal ?? code}`)))
      const late = () => reject(new Error(`${task} of ${plan.library}: no answer in ${boundMs} ms`))
      const timer = setTimeout(() => settle(late), boundMs)
      this.#child.on('message', heard)
      this.#child.on('exit', died)
      this.tell({ task, plan })
    })
  }

  kill() {
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
