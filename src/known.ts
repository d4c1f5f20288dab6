import type { EngineError } from './errors.ts'

/** What was found by the latest attempt that was answered or failed. */
export interface Known {
  readonly answered: boolean
  readonly holder: string | undefined
  readonly failure: EngineError | undefined
  readonly atMs: number
  /** The holder has it offered, and has not taken it yet. */
  readonly offered?: boolean
  /** The holders would share it, but a writer waits for it. */
  readonly writerWaits?: boolean
}

export const NOTHING_KNOWN: Known = { answered: false, holder: undefined, failure: undefined, atMs: -Infinity }
