import { expect, test } from 'vitest'
import { startRedis } from '../../harness/servers/redis.ts'
import { isType, startSetup } from './setup.ts'

const ROUNDS = 150
/** So that each process has waiters of its own and hands its lease over to them. */
const LANES = 2

test('two processes with different clients never are in the critical section together, and tokens grow', async () => {
  await using setup = await startSetup()
  await using log = await startRedis()
  const env = { LOG_PORT: String(log.port), ROUNDS: String(ROUNDS), LANES: String(LANES) }
  const workers = ['ioredis', 'node-redis'].map((driver) => setup.worker('rounds.mjs', driver, env))
  for (const worker of workers) await worker.next(isType('ready'), { withinMs: 40_000, what: 'sign of life' })
  // Both are in line before the first of them gets in, however quick one of them is.
  const held = await setup.locks.acquire('section', { ttl: '60s' })
  for (const worker of workers) worker.send({ type: 'go' })
  for (const worker of workers) await worker.next(isType('waiting'), { withinMs: 40_000, what: 'a waiter' })
  await held.release()
  for (const worker of workers) await worker.next(isType('done'), { withinMs: 50_000, what: 'end of its rounds' })

  const marks = (await log.cli('LRANGE', 'log', '0', '-1')).split('\n')
  expect(marks).toHaveLength(2 * 2 * ROUNDS)
  const visits = marks.filter((mark) => mark.startsWith('enter ')).map((mark) => mark.slice('enter '.length))
  // Whoever entered leaves before anyone else enters.
  expect(marks).toEqual(visits.flatMap((visit) => [`enter ${visit}`, `leave ${visit}`]))
  const tokens = visits.map((visit) => BigInt(visit.split(' ')[1]!))
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => Number(a - b)))
  // They did meet: the section changed hands between the processes, not only once.
  const pids = visits.map((visit) => visit.split(' ')[0])
  const changes = pids.filter((pid, index) => index > 0 && pid !== pids[index - 1]).length
  expect(new Set(pids).size).toBe(2)
  expect(changes).toBeGreaterThan(3)
})
