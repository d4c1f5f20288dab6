import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { failed } from '../../sim/checkers/all.ts'
import { useMemory } from '../../schedules/in-memory.ts'
import { drawPlan, type Bounds } from '../../schedules/plan.ts'
import { run, type Outcome } from '../../schedules/run.ts'
import type { Target } from '../../schedules/target.ts'
import { isAvailable } from '../../harness/binaries.ts'
import { told } from '../../schedules/told.ts'

/** How many seeds are played of each engine. */
const SEEDS = 200
/** How many seeds one test plays: few enough for its time on a busy machine. */
const AT_ONCE = 50
/** Seconds on a machine that does nothing else. */
const PATIENT = { timeout: 300_000 }
/** A bug that is put in is seen within so many schedules. */
const SEEN_WITHIN = 150

/**
 * Plays schedules on a real server, and shows that known bugs are seen by them. With `SCHEDULE_SEED=n` only that one is played,
 * and all that happened is printed if it fails.
 */
export function playSchedules(open: () => Promise<Target>): void {
  describe.runIf(isAvailable('clock-shift'))('schedules', () => {
    onTarget(open)
  })
}

function onTarget(open: () => Promise<Target>): void {
  let target: Target

  beforeAll(async () => {
    useMemory()
    target = await open()
  })

  afterAll(() => target[Symbol.asyncDispose]())

  const play = (seed: number, wrong?: string): Promise<Outcome> => run(drawPlan(seed, target.bounds), target, wrong)

  /** What the checkers have found to be true, of all seeds together. */
  const looked = new Set<string>()
  const only = process.env['SCHEDULE_SEED']
  const firsts = only === undefined ? Array.from({ length: SEEDS / AT_ONCE }, (_, part) => part * AT_ONCE + 1) : []

  test.for(firsts)(
    `no promise is broken in ${AT_ONCE} schedules from seed %i on`,
    PATIENT,
    async (first, { signal }) => {
      for (let seed = first; seed < first + AT_ONCE; seed++) {
        // Of a test that is over nothing may go on: the next one has the server to itself.
        signal.throwIfAborted()
        const outcome = await play(seed)
        expectWell(outcome, target.name)
        for (const { checker, verdict } of outcome.verdicts) if (verdict === 'true') looked.add(checker)
      }
    },
  )

  test.runIf(only === undefined)('what was drawn had each kind of lock that the engine has', () => {
    expect([...looked]).toEqual(expect.arrayContaining(kindsOf(target.bounds)))
  })

  test.runIf(only !== undefined)(`no promise is broken in the schedule of seed ${only}`, async () => {
    expectWell(await play(Number(only)), target.name)
  })

  describe.runIf(only === undefined)('the checkers can see', () => {
    test('the same seed is the same schedule', async () => {
      const texts = [await play(1), await play(1)].map(({ stage }) => byRank(stage.history.text()))
      expect(texts[1]).toBe(texts[0])
    })

    test('known bugs that are put into the requests', PATIENT, async ({ signal }) => {
      const seen: Record<string, string> = {}
      for (const wrong of Object.keys(target.wrong)) {
        for (let seed = 1; seed <= SEEN_WITHIN && seen[wrong] === undefined; seed++) {
          signal.throwIfAborted()
          const { verdicts } = await play(seed, wrong)
          const [verdict] = failed(verdicts).filter(({ checker }) => checker === target.wrong[wrong])
          if (verdict !== undefined) seen[wrong] = verdict.checker
        }
      }
      expect(seen).toEqual(target.wrong)
    })
  })
}

/** The checkers of the kinds of locks that are more than a lease. */
function kindsOf({ shared, moves = true }: Bounds): string[] {
  return ['permits', 'effects', ...(moves ? ['adoption'] : []), ...(shared ? ['nesting'] : [])]
}

function expectWell({ plan, stage, verdicts }: Outcome, engine: string): void {
  expect.soft(told(engine, plan.seed, stage.history, verdicts)).toBe('')
}

/** Where tokens are numbers of the server's log, only their order is the same. */
function byRank(text: string): string {
  const each = /(?<="(?:token|inner|formerToken)":)\d+/g
  const tokens = [...new Set(text.match(each))].sort((a, b) => Number(a) - Number(b))
  return text.replaceAll(each, (token) => `#${tokens.indexOf(token)}`)
}
