const { createLocks, LeaseLostError, WaitTimeoutError } = require('ringfence')
const { memory } = require('ringfence/memory')
const { testLocks } = require('ringfence/testing')
const { restock } = require('./restock.cjs')

test('ten who notice it at once order it once', async () => {
  const locks = createLocks(memory())
  let count = 0
  const order = jest.fn(async () => void (count = 100))
  const stock = { count: async () => count, order }
  const answers = await Promise.all(Array.from({ length: 10 }, () => restock(locks, stock, 'cup')))
  expect(answers.filter((answer) => answer === 'ordered')).toHaveLength(1)
  expect(order).toHaveBeenCalledTimes(1)
  await locks.close()
})

describe('on a clock that the test moves', () => {
  const { locks, engine, clock } = testLocks()
  const none = async () => 0

  test('an order of an hour keeps its lock', async () => {
    const stock = { count: none, order: () => clock.advance('1h') }
    expect(await restock(locks, stock, 'cup')).toBe('ordered')
  })

  test('an order whose lock is lost is told to stop', async () => {
    const order = async (_item, signal) => {
      await engine.lose('stock:cup')
      await clock.advance('1ms')
      signal.throwIfAborted()
    }
    await expect(restock(locks, { count: none, order }, 'cup')).rejects.toThrow(LeaseLostError)
  })

  test('while someone else orders, it waits for five seconds', async () => {
    const order = jest.fn()
    const other = await engine.take('stock:cup')
    const waiting = Promise.allSettled([restock(locks, { count: none, order }, 'cup')])
    await clock.advance('5s')
    const [{ reason }] = await waiting
    expect(reason).toBeInstanceOf(WaitTimeoutError)
    expect(order).not.toHaveBeenCalled()
    await other.release()
  })
})
