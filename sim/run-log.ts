import type { Run, RunLog } from '../src/runs.ts'
import type { History } from './history.ts'
import type { Network } from './network.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'

/** Which part of the runs cannot be recorded. */
const REFUSED = 0.1

/** Where runs of `once` are recorded: somewhere on the network, which fails now and then. */
export function runLog(network: Network, history: History, process: Process, random: Seeded): RunLog {
  const { time } = network
  return {
    recordRun: ({ owner, outcome, job: resource }: Run) =>
      new Promise((resolve, reject) => {
        const isRefused = random.chance(REFUSED)
        time.at(process.leave() + network.travelMs(random), () => {
          if (!isRefused) history.add({ at: time.nowMs, kind: 'run', process: process.name, owner, resource, outcome })
          time.after(network.travelMs(random), () =>
            process.enter(() => (isRefused ? reject(new Error('the run was not recorded')) : resolve())),
          )
        })
      }),
  }
}
