import * as fc from 'fast-check'
import { expect } from 'vitest'

/** `npm run fuzz -- --for 10m` sets it. Without, as many runs as take about a second or two. */
const SECONDS = Number(process.env['RINGFENCE_FUZZ_SECONDS'] ?? 0)

/** It goes on for as long as was asked for. */
export const isLong = SECONDS > 0

export const FUZZ_TIMEOUT_MS = 120_000 + SECONDS * 1000

/** After so many runs all code has been loaded and compiled. */
const WARM_RUNS = 300
/** A kilobyte that every run leaves behind is ten megabytes in ten thousand runs. */
const MOST_GROWTH_MB = 16

interface Extent<T> {
  /** In the test run. */
  readonly runs: number
  /** Of the time of a file that is given to this test, where it is asked to go on for long. */
  readonly part: number
  /** The smallest input of each finding, which stays in the test. */
  readonly examples?: readonly T[]
  /** Whether a rejection that is left unhandled is a driver's own. Default: none is. */
  readonly isTheirs?: (reason: unknown) => boolean
}

/**
 * Runs it with arbitrary input. A run that fails prints its seed and the smallest input that fails. No rejection may be left
 * unhandled, and, where it goes on for long, memory may not grow.
 */
export async function always<T>(
  input: fc.Arbitrary<T>,
  { runs, part, examples = [], isTheirs = () => false }: Extent<T>,
  work: (value: T) => unknown,
): Promise<void> {
  const rejections: unknown[] = []
  const note = (reason: unknown): void => {
    if (!isTheirs(reason)) rejections.push(reason)
  }
  process.on('unhandledRejection', note)
  let done = 0
  let warmMb = 0
  const property = fc.asyncProperty(input, async (value) => {
    await work(value)
    // What is left unhandled is told between two turns of the event loop.
    await new Promise((resolve) => setImmediate(resolve))
    const [first] = rejections.splice(0)
    if (first !== undefined) throw new Error('a rejection was not handled', { cause: first })
    if (isLong && ++done === WARM_RUNS) warmMb = heapMb()
  })
  const long = {
    numRuns: Number.MAX_SAFE_INTEGER,
    interruptAfterTimeLimit: SECONDS * 1000 * part,
    markInterruptAsFailure: false,
  }
  try {
    await fc.assert(property, {
      ...(isLong ? long : { numRuns: runs }),
      examples: examples.map((example): [T] => [example]),
    })
  } finally {
    process.off('unhandledRejection', note)
  }
  if (done > WARM_RUNS) expect(heapMb() - warmMb).toBeLessThan(MOST_GROWTH_MB)
}

function heapMb(): number {
  globalThis.gc!()
  globalThis.gc!()
  return process.memoryUsage().heapUsed / 1024 / 1024
}
