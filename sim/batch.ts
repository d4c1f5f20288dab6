import { fork } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { availableParallelism } from 'node:os'
import { commit } from './commit.ts'
import { drawPlan } from './plan.ts'
import { run } from './run.ts'
import { addRun, merge, noTotals, type Totals } from './totals.ts'

/** Seeds that a worker does between two reports: a second or two. */
const CHUNK = 25

export interface Batch {
  readonly first: number
  readonly runs: number
  /** Goes on where the last batch with the same beginning and commit stopped. */
  readonly resume: boolean
  /** Ends after this time, if not before. */
  readonly forMs?: number
  /** Ends at the first failure. */
  readonly untilFailure?: boolean
  readonly progress?: (totals: Totals) => void
}

/** One seed after the other, in this process. */
export async function runSeeds(first: number, count: number, untilFailure = false): Promise<Totals> {
  const totals = noTotals()
  for (let seed = first; seed < first + count; seed++) {
    addRun(totals, await run(drawPlan(seed)))
    if (untilFailure && totals.failedSeeds.length > 0) break
  }
  return totals
}

interface Progress {
  readonly first: number
  next: number
  totals: Totals
}

/** Many seeds on all cores. What is done is written down, so that it can be gone on with. */
export async function runBatch(batch: Batch, main: string, folder: string): Promise<Totals> {
  const { first, runs } = batch
  const file = path.join(folder, `${first}-${commit().replaceAll(' ', '-')}.json`)
  const known = batch.resume && existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Progress) : undefined
  const progress: Progress = known ?? { first, next: first, totals: noTotals() }
  const last = first + runs
  const endsMs = performance.now() + (batch.forMs ?? Infinity)
  let next = progress.next
  /** Chunks that were done before one that began earlier. */
  const done = new Set<number>()
  const isOver = (): boolean =>
    next >= last ||
    performance.now() > endsMs ||
    (batch.untilFailure === true && progress.totals.failedSeeds.length > 0)
  await Promise.all(
    Array.from({ length: Math.min(availableParallelism(), Math.ceil(runs / CHUNK)) }, async () => {
      const worker = fork(main, ['--work'])
      try {
        while (!isOver()) {
          const from = next
          next += CHUNK
          const totals = await answerOf(worker, { from, count: Math.min(CHUNK, last - from) })
          merge(progress.totals, totals)
          done.add(from)
          while (done.delete(progress.next)) progress.next += CHUNK
          if (batch.resume) {
            mkdirSync(folder, { recursive: true })
            // Only whole beginnings are gone on from; what is done beyond is done again, and counted once.
            if (done.size === 0) writeFileSync(file, JSON.stringify(progress))
          }
          batch.progress?.(progress.totals)
        }
      } finally {
        worker.disconnect()
      }
    }),
  )
  return progress.totals
}

function answerOf(worker: ReturnType<typeof fork>, task: { from: number; count: number }): Promise<Totals> {
  return new Promise((resolve, reject) => {
    const ended = (code: number | null): void =>
      reject(new Error(`a worker ended with code ${code} at seed ${task.from}`))
    worker.once('exit', ended)
    worker.once('message', (totals) => {
      worker.off('exit', ended)
      resolve(totals as Totals)
    })
    worker.send(task)
  })
}

/** The other end. */
export function work(): void {
  process.on('message', (task) => {
    const { from, count } = task as { from: number; count: number }
    void runSeeds(from, count).then((totals) => process.send!(totals))
  })
}
