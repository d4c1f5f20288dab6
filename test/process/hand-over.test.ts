import { expect, test } from 'vitest'
import { startRedis } from '../../harness/servers/redis.ts'
import { isType, startSetup } from './setup.ts'

const WAITERS = 60
const HAND_OVERS = 4

test('a process hands its lease over to its own waiters only so often in a row, and another one gets its turns', async () => {
  await using setup = await startSetup()
  await using log = await startRedis()
  const env = { LOG_PORT: String(log.port), WAITERS: String(WAITERS), HAND_OVERS: String(HAND_OVERS) }
  const workers = [setup.worker('queue.mjs', 'ioredis', env), setup.worker('queue.mjs', 'ioredis', env)]
  for (const worker of workers) await worker.next(isType('ready'), { withinMs: 40_000, what: 'sign of life' })
  // Both are in line before the first of them gets in, however quick one of them is.
  const held = await setup.locks.acquire('section', { ttl: '60s' })
  for (const worker of workers) worker.send({ type: 'go' })
  for (const worker of workers) await worker.next(isType('waiting'), { withinMs: 40_000, what: 'a waiter' })
  await held.release()
  for (const worker of workers) await worker.next(isType('done'), { withinMs: 50_000, what: 'end of its waiters' })

  const grants = (await log.cli('LRANGE', 'log', '0', '-1')).split('\n')
  expect(grants).toHaveLength(2 * WAITERS)
  // A chain is one grant that was won on the servers, and the hand-overs behind it.
  const chains: number[] = []
  for (const grant of grants) {
    if (grant.endsWith('won')) chains.push(0)
    else chains[chains.length - 1]!++
  }
  expect(Math.max(...chains)).toBe(HAND_OVERS)
  // While both wait, each gets turns: neither is done before the other has had a good part of its own.
  const pids = grants.map((grant) => grant.split(' ')[0]!)
  const firstDone = Math.min(...new Set(pids.map((pid) => pids.lastIndexOf(pid))))
  const meanwhile =
    new Set(pids).size === 2 ? pids.slice(0, firstDone).filter((pid) => pid !== pids[firstDone]).length : 0
  expect(meanwhile).toBeGreaterThan(WAITERS / 4)
})
