import { expect, test } from 'vitest'
import { Deadlines } from '../../../../src/deadlines.ts'
import { inTime, NoAnswerError } from '../../../../src/engines/shared/in-time.ts'
import { Gate } from '../../../../harness/scripted-engine.ts'
import { ManualClock, settled } from '../../../../harness/manual-clock.ts'

test('an answer in time is the answer, and a failure the failure', async () => {
  const deadlines = new Deadlines(new ManualClock())
  expect(await inTime(Promise.resolve('x'), deadlines, 100)).toBe('x')
  const failure = new Error('down')
  await expect(inTime(Promise.reject(failure), deadlines, 100)).rejects.toBe(failure)
})

test('silence is an error of its own, and what comes after it is late', async () => {
  const clock = new ManualClock()
  const gate = new Gate()
  let late = 0
  const outcome = inTime(gate.opened, new Deadlines(clock), 100, { late: () => late++ }).catch(
    (error: unknown) => error,
  )
  await clock.advance(100)
  expect(await outcome).toBeInstanceOf(NoAnswerError)
  expect(late).toBe(0)
  gate.open()
  await settled()
  expect(late).toBe(1)
})

test('the caller may say what silence means', async () => {
  const clock = new ManualClock()
  const options = { silence: () => new Error('the node sleeps') }
  const outcome = inTime(new Promise(() => undefined), new Deadlines(clock), 100, options).catch(String)
  await clock.advance(100)
  expect(await outcome).toContain('the node sleeps')
})
