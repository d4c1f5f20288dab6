import { failed } from '../sim/checkers/all.ts'
import type { History, Verdict } from '../sim/history.ts'
import { print, storyOf } from '../sim/timeline.ts'

/** What a failed schedule is reported with: its seed, what is false, and the story of it. */
export function told(engine: string, seed: number | string, history: History, verdicts: readonly Verdict[]): string {
  return failed(verdicts)
    .map(
      (verdict) =>
        `${engine}, seed ${seed}: ${verdict.checker} is false: ${verdict.why}\n` +
        `to see it again: npm run schedules -- --engine ${engine} --seed ${seed}\n${print(storyOf(history, verdict))}`,
    )
    .join('\n\n')
}
