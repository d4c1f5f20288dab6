import path from 'node:path'
import { pathToFileURL } from 'node:url'
import type { MachineClock } from '../../src/clock.ts'
import type { Engine } from '../../src/engine.ts'
import { loadSqlite, type SqliteConnection } from '../../src/engines/file/client.ts'
import { file } from '../../src/engines/file/index.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import type { Time } from '../../sim/clock.ts'
import type { Process } from '../../sim/process.ts'
import { Seeded } from '../../sim/random.ts'
import { isCalm } from '../plan.ts'
import type { Target } from '../target.ts'

const REQUEST_TIMEOUT_MS = 200
const WALL_MS = 1_700_000_000_000
const LEFT = 'SELECT resource, owner, until_ms FROM lease'

/**
 * Leases in a file of SQLite, of several processes on one machine, whose clock they share. There are no requests to hold back: what
 * the seed draws is which process stands still, and when another one keeps the file busy.
 */
export async function fileTarget(): Promise<Target> {
  const folder = createFolder('schedules')
  const { connect } = await loadSqlite()
  let opened: Engine[] = []
  let files = 0
  let name = ''
  const connected = (): SqliteConnection => connect(`${pathToFileURL(name).href}?mode=rw`)
  return {
    name: 'file',
    wrong: { [TWO_CLOCKS]: 'exclusion' },
    bounds: { ttlMs: [400, 2000], shared: true, repeats: false, oneClock: true, readersApart: true },
    lateMs: 5 * REQUEST_TIMEOUT_MS,
    async begin() {
      await Promise.all(opened.map((engine) => engine.close()))
      opened = []
      name = path.join(folder, `${files++}.db`)
      return WALL_MS
    },
    clock: () => undefined,
    open({ process, wrong }) {
      const aheadMs = wrong === TWO_CLOCKS && process.name.startsWith('p0') ? 300 : 0
      const engine = file(name, { clock: clockOf(process, aheadMs), requestTimeout: REQUEST_TIMEOUT_MS })
      opened.push(engine)
      return engine
    },
    disturb(time, plan) {
      if (isCalm(plan)) return
      const random = new Seeded(`busy ${plan.seed}`)
      for (let fromMs = random.between(50, plan.busyMs); fromMs < plan.busyMs;) {
        const untilMs = fromMs + random.between(1, 2 * REQUEST_TIMEOUT_MS)
        time.at(fromMs, () => keepBusy(time, untilMs, connected()))
        fromMs = untilMs + random.between(50, plan.busyMs)
      }
    },
    async left(nowMs) {
      const reader = connected()
      const rows = reader.prepare(LEFT).all()
      reader.close()
      return rows
        .map(({ resource, owner, until_ms: untilMs }) => ({
          resource: String(resource),
          owner: String(owner),
          leftMs: Number(untilMs) - nowMs,
        }))
        .filter(({ leftMs }) => leftMs > 0)
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(opened.map((engine) => engine.close()))
      removeFolder(folder)
    },
  }
}

/** Another process writes to the file. */
function keepBusy(time: Time, untilMs: number, writer: SqliteConnection): void {
  writer.exec('BEGIN IMMEDIATE')
  time.at(untilMs, () => {
    writer.exec('COMMIT')
    writer.close()
  })
}

const TWO_CLOCKS = 'a process whose clock of the machine is another one'

/** All processes read the same, in the time of the schedule. */
function clockOf(process: Process, aheadMs: number): MachineClock {
  return {
    monotonicMs: () => process.monotonicMs(),
    wallMs: () => process.wallMs(),
    timer: (callback, delayMs) => process.timer(callback, delayMs),
    machineMs: () => process.monotonicMs() + aheadMs,
  }
}
