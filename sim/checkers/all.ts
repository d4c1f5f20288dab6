import type { History, Verdict } from '../history.ts'
import { adoption } from './adoption.ts'
import { effects } from './effects.ts'
import { exclusion } from './exclusion.ts'
import { guardedStore } from './guard.ts'
import { closed } from './closed.ts'
import { inspection } from './inspection.ts'
import { calm, cleanUp, leaks, timeToLive } from './leftovers.ts'
import { manners } from './manners.ts'
import { nesting } from './nesting.ts'
import { once } from './once.ts'
import { permits } from './permits.ts'
import { progress } from './progress.ts'
import { signal, timeLeft } from './signal.ts'
import { tokens } from './tokens.ts'

const CHECKERS: readonly ((history: History) => Verdict)[] = [
  exclusion,
  tokens,
  guardedStore,
  signal,
  timeLeft,
  progress,
  cleanUp,
  timeToLive,
  leaks,
  calm,
  once,
  closed,
  manners,
  permits,
  adoption,
  nesting,
  effects,
  inspection,
]

/** Every checker's word on a history, from the history alone. */
export function check(history: History): Verdict[] {
  return CHECKERS.map((checker) => checker(history))
}

export function failed(verdicts: readonly Verdict[]): Extract<Verdict, { verdict: 'false' }>[] {
  return verdicts.filter((verdict) => verdict.verdict === 'false')
}
