import { fork } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { availableParallelism } from 'node:os'
import { commit } from './commit.ts'
import { drawPlan } from './draw.ts'
import { play } from './play.ts'
import { addBrokenRun, addRun, merge, noTotals, type Totals } from './totals.ts'

/** Seeds that a worker does between two reports: about a second. */
const CHUNK = 10

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
export async function runSeeds(first: number, count: number): Promise<Totals> {
  const totals = noTotals()
  for (let seed = first; seed < first + count; seed++) {
    const outcome = await play(drawPlan(seed)).catch(() => undefined)
    // A run that cannot even be finished: time stands still, or the code fails, maybe where nobody waits for it.
    if (outcome === undefined || unhandled > 0) addBrokenRun(totals, String(seed))
    else addRun(totals, outcome)
    unhandled = 0
  }
  return totals
}

/** Rejections in this process that nobody has handled, since the last run. */
let unhandled = 0

/** What is known of a batch: all seeds from the first to the one before `next`. */
export interface Progress {
  readonly commit: string
  readonly first: number
  next: number
  /** Time that was spent on it, in all sittings together. */
  tookMs: number
  totals: Totals
}

/** Many seeds on all cores. What is done is written down, so that it can be gone on with. */
export async function runBatch(batch: Batch, main: string, folder: string): Promise<Progress> {
  const { first, runs } = batch
  const version = commit()
  const file = path.join(folder, `${first}-${version.replaceAll(' ', '-')}.json`)
  const known = batch.resume && existsSync(file) ? progressIn(file) : undefined
  const progress: Progress = known ?? { commit: version, first, next: first, tookMs: 0, totals: noTotals() }
  const last = first + runs
  let sinceMs = performance.now()
  const endsMs = sinceMs + (batch.forMs ?? Infinity)
  let { next } = progress
  let hasFailed = progress.totals.failedSeeds.length > 0
  /** Chunks that were done before one that began earlier: they count once all before them are done, too. */
  const ahead = new Map<number, Totals>()
  const isOver = (): boolean => next >= last || performance.now() > endsMs || (batch.untilFailure === true && hasFailed)
  const done = (from: number, totals: Totals): void => {
    hasFailed ||= totals.failedSeeds.length > 0
    ahead.set(from, totals)
    for (let chunk = ahead.get(progress.next); chunk !== undefined; chunk = ahead.get(progress.next)) {
      ahead.delete(progress.next)
      merge(progress.totals, chunk)
      progress.next += chunk.seeds
    }
    progress.tookMs += performance.now() - sinceMs
    sinceMs = performance.now()
    if (batch.resume) keep(file, progress)
    batch.progress?.(progress.totals)
  }
  await Promise.all(
    Array.from({ length: Math.min(availableParallelism(), Math.ceil((last - next) / CHUNK)) }, async () => {
      const worker = fork(main, ['--work'])
      try {
        while (!isOver()) {
          const from = next
          const count = Math.min(CHUNK, last - from)
          next += count
          done(from, await answerOf(worker, { from, count }))
        }
      } finally {
        worker.disconnect()
      }
    }),
  )
  return progress
}

/** Whole or not at all, whenever the process is ended. */
function keep(file: string, progress: Progress): void {
  mkdirSync(path.dirname(file), { recursive: true })
  writeFileSync(`${file}.new`, JSON.stringify(progress))
  renameSync(`${file}.new`, file)
}

function progressIn(file: string): Progress {
  return JSON.parse(readFileSync(file, 'utf8')) as Progress
}

/** What batches have come to that were kept, also while they run. */
export function keptProgress(folder: string): Progress[] {
  if (!existsSync(folder)) return []
  const files = readdirSync(folder).filter((name) => name.endsWith('.json'))
  return files.sort().map((name) => progressIn(path.join(folder, name)))
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

/** The other end. A run that is not waited for any more does not go on. */
export function work(): void {
  process.once('disconnect', () => process.exit())
  process.on('unhandledRejection', () => unhandled++)
  process.on('message', (task) => {
    const { from, count } = task as { from: number; count: number }
    void runSeeds(from, count).then((totals) => process.send!(totals))
  })
}
