import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { isAvailable } from '../../harness/binaries.ts'
import { startRedis, startRedisNodes } from '../../harness/servers/redis.ts'

const noClock = !isAvailable('clock-shift')

const flavours = [
  { name: 'redis', valkey: false },
  { name: 'valkey', valkey: true },
]

test.for(flavours)('$name answers on its own port and is gone after stop', async ({ valkey }) => {
  await using server = await startRedis({ valkey })
  const { pid } = server
  expect(await server.cli('SET', 'a', '1')).toBe('OK')
  expect(await server.cli('GET', 'a')).toBe('1')
  await server.stop()
  expect(() => process.kill(pid, 0)).toThrow('ESRCH')
})

test.for(flavours)('a clock-shifted $name expires a 30 s key after a 40 s jump', async ({ valkey }, { skip }) => {
  skip(noClock, 'no C compiler, so no library that shifts clocks')
  await using server = await startRedis({ valkey, clockShift: true })
  await server.cli('SET', 'key', 'value', 'PX', '30000')
  server.shiftClock(20_000)
  expect(await server.cli('GET', 'key')).toBe('value')
  server.shiftClock(40_000)
  expect(await server.cli('GET', 'key')).toBe('')
})

test('a shifted clock goes back too, and moves one server alone', async ({ skip }) => {
  skip(noClock, 'no C compiler, so no library that shifts clocks')
  await using shifted = await startRedis({ clockShift: true })
  await using other = await startRedis()
  shifted.shiftClock(-3_600_500)
  const [behind, now] = await Promise.all([shifted.cli('TIME'), other.cli('TIME')])
  expect(Number(now.split('\n')[0]) - Number(behind.split('\n')[0])).toBeGreaterThanOrEqual(3_599)
})

test('a frozen server answers after thaw', async () => {
  await using server = await startRedis()
  await server.freeze()
  expect(readFileSync(`/proc/${server.pid}/stat`, 'utf8')).toMatch(/\) T /)
  const answer = server.cli('PING')
  await server.thaw()
  expect(await answer).toBe('PONG')
})

test('a frozen server can be stopped', async () => {
  await using server = await startRedis()
  await server.freeze()
  await server.stop()
  expect(() => server.pid).toThrow('not running')
})

test('a killed server comes back empty on the same port', async () => {
  await using server = await startRedis()
  await server.cli('SET', 'a', '1')
  await server.kill()
  await expect(server.cli('PING')).rejects.toThrow('Connection refused')
  await server.restart()
  expect(await server.cli('GET', 'a')).toBe('')
})

test('a durable server keeps its writes across a crash, unless restarted empty', async () => {
  await using server = await startRedis({ durable: true })
  await server.cli('SET', 'a', '1')
  await server.kill()
  await server.restart()
  expect(await server.cli('GET', 'a')).toBe('1')
  await server.restart({ empty: true })
  expect(await server.cli('GET', 'a')).toBe('')
})

test('a password and further users are asked for', async () => {
  await using server = await startRedis({ password: 'secret', acl: ['alice on >wonder ~lock:* +get'] })
  const alice = ['--user', 'alice', '--pass', 'wonder', '--no-auth-warning']
  expect(await server.cli('PING')).toBe('PONG')
  expect(await server.cli(...alice, 'GET', 'lock:a')).toBe('')
  await expect(server.cli(...alice, 'GET', 'other')).rejects.toThrow('NOPERM')
})

test('five nodes start together, each with its own memory', async () => {
  await using group = await startRedisNodes(5)
  await Promise.all(group.nodes.map((node, index) => node.cli('SET', 'who', String(index))))
  const answers = await Promise.all(group.nodes.map((node) => node.cli('GET', 'who')))
  expect(answers).toEqual(['0', '1', '2', '3', '4'])
})

test('a server that cannot start says why', async () => {
  await expect(startRedis({ args: ['--no-such-setting', 'x'] })).rejects.toThrow('no-such-setting')
})
