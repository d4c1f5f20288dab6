import { expect, test } from 'vitest'
import { until } from '../../../harness/until.ts'

test('returns the first truthy answer', async () => {
  let asked = 0
  expect(await until(() => (asked += 1) > 2 && 'yes', { what: 'a yes', everyMs: 1 })).toBe('yes')
  expect(asked).toBe(3)
})

test('names what it waited for, with the last exception as the cause', async () => {
  const refused = new Error('refused')
  const waiting = until(() => Promise.reject(refused), {
    what: 'a leader',
    withinMs: 20,
    everyMs: 1,
  })
  await expect(waiting).rejects.toMatchObject({
    message: 'a leader: not so within 20 ms',
    cause: refused,
  })
})

test('a question without an answer ends at the deadline', async () => {
  const waiting = until(() => new Promise(() => undefined), { what: 'an answer', withinMs: 20 })
  await expect(waiting).rejects.toThrow('an answer: not so within 20 ms')
})
