import { expect, test } from 'vitest'
import { heldNow, WaitReport, type WaitSubject } from '../../../src/cli/wait-report.ts'
import type { LeaseInfo, LockEvent } from '../../../src/index.ts'
import { ManualClock } from '../../../harness/manual-clock.ts'

const WAITING: LockEvent = { type: 'waiting', call: 1, resources: ['a'], holder: undefined, atMostMs: 1000 }
const ABOUT = { call: 1, resources: ['a'], owner: 'us@me' }
const GRANTED: LockEvent = { type: 'granted', ...ABOUT, token: 2n, waitedMs: 1, handedOver: false, shared: false }

function reporting(lease: WaitSubject['lease'], subject: Partial<WaitSubject> = {}) {
  const clock = new ManualClock()
  const said: string[] = []
  const output = { say: (text: string) => said.push(text), live: () => undefined, endLive: () => undefined }
  const report = new WaitReport({ ...output, canBeLive: false }, { held: "'a' is held", lease, ...subject }, clock)
  return { clock, said, report }
}

test('a log gets a line every 30 seconds while it waits, and none after', async () => {
  const line = [
    { owner: `${'1'.repeat(32)}@other`, since: 0 },
    { owner: 'us@me', since: 0 },
  ]
  const lease: LeaseInfo = {
    resource: 'a',
    owner: `${'2'.repeat(32)}@holder`,
    token: 1n,
    remainingMs: 9000,
    heldMs: 61_000,
    line,
  }
  const { clock, said, report } = reporting(() => Promise.resolve(lease))
  report.observe({ type: 'attempt', ...ABOUT })
  report.observe(WAITING)
  await clock.advance(29_999)
  expect(said).toEqual([])
  await clock.advance(1)
  report.observe(WAITING)
  await clock.advance(30_000)
  expect(said).toEqual([
    "still waiting 30 s, number 2 of 2 in line: 'a' is held by holder for 1 min 1 s",
    "still waiting 1 min 0 s, number 2 of 2 in line: 'a' is held by holder for 1 min 1 s",
  ])
  report.observe(GRANTED)
  await clock.advance(300_000)
  expect(said).toHaveLength(2)
  expect(clock.timers).toBe(0)
})

test('who holds it may not be known, and may not be found out', async () => {
  const { clock, said, report } = reporting(() => Promise.reject(new Error('cut off')))
  report.observe(WAITING)
  await clock.advance(30_000)
  expect(said).toEqual(["still waiting 30 s: 'a' is held"])
})

test('of a pool it looks at the permits that were asked for last, and tells of one', async () => {
  const looks: (readonly string[])[] = []
  const lease: LeaseInfo = {
    resource: 'gpu#1',
    owner: `${'2'.repeat(32)}@holder`,
    token: 1n,
    remainingMs: 9000,
    heldMs: 61_000,
    line: [{ owner: 'us 9', since: 0 }],
  }
  const { clock, said, report } = reporting(
    (asked) => {
      looks.push(asked)
      return Promise.resolve(lease)
    },
    { held: "all 12 permits of 'gpu' are held", isOneOfMany: true },
  )
  for (let permit = 0; permit < 12; permit++) {
    report.observe({ type: 'attempt', call: 1, resources: [`gpu#${permit}`], owner: `us ${permit}` })
  }
  report.observe({ type: 'attempt', call: 1, resources: ['gpu#2'], owner: 'us again' })
  report.observe(WAITING)
  await clock.advance(30_000)
  expect(looks).toEqual([['gpu#2', 'gpu#11', 'gpu#10', 'gpu#9', 'gpu#8', 'gpu#7', 'gpu#6', 'gpu#5']])
  expect(said).toEqual([
    "still waiting 30 s, number 1 of 1 in line: 'gpu#1' is held by holder for 1 min 1 s; all 12 permits of 'gpu' are held",
  ])
})

test('a time below a second is not told, and what is only offered is not held', () => {
  const lease: LeaseInfo = { resource: 'a', owner: `${'3'.repeat(32)}@heir`, token: 1n, remainingMs: 900, heldMs: 4 }
  expect(heldNow({ ...lease, offered: true }, 0)).toBe("'a' is offered to heir")
  expect(heldNow(lease, 0)).toBe("'a' is held by heir, since just now")
  expect(heldNow(lease, 2000)).toBe("'a' is held by heir for 2.0 s")
})
