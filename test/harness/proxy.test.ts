import { connect, type Socket } from 'node:net'
import { once } from 'node:events'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { startProxy, type Proxy } from '../../harness/faults/proxy.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'

let redis: RedisServer
let proxy: Proxy
let socket: Socket
let answers: string

beforeAll(async () => {
  redis = await startRedis()
})

afterAll(() => redis.stop())

beforeEach(async () => {
  await redis.cli('FLUSHALL')
  proxy = await startProxy(redis.port)
  socket = await open()
})

afterEach(async () => {
  socket.destroy()
  await proxy.close()
})

async function open(): Promise<Socket> {
  answers = ''
  const opened = connect(proxy.port, '127.0.0.1')
  opened.setEncoding('utf8').on('data', (text) => (answers += String(text)))
  await once(opened, 'connect')
  // Tests that expect the failure wait for it; without any listener it would end the run.
  opened.on('error', () => undefined)
  return opened
}

const answered = (text: string): Promise<boolean> =>
  until(() => answers.includes(text), { what: `the answer ${JSON.stringify(text)}` })

test('without faults requests and replies pass', async () => {
  socket.write('SET a 1\r\nGET a\r\n')
  expect(await answered('+OK\r\n$1\r\n1\r\n')).toBe(true)
})

test('round trips are counted: what is sent before the answer belongs to the same one', async () => {
  socket.write('SET a 1\r\n')
  socket.write('GET a\r\n')
  await answered('+OK\r\n$1\r\n1\r\n')
  expect(proxy.roundTrips).toBe(1)
  socket.write('PING\r\n')
  await answered('+PONG')
  expect(proxy.roundTrips).toBe(2)
})

test('a lost reply still lands the write', async () => {
  proxy.cutOnNextReply()
  const failed = once(socket, 'error')
  socket.write('SET a 1\r\n')
  expect(await failed).toMatchObject([{ code: 'ECONNRESET' }])
  expect(await redis.cli('GET', 'a')).toBe('1')
  expect(proxy.lostReplies).toBe(1)
  expect(answers).toBe('')
})

test('a reply can be lost for one kind of request alone', async () => {
  proxy.cutOnNextReply('SET')
  socket.write('PING\r\n')
  await answered('+PONG')
  const failed = once(socket, 'error')
  socket.write('SET a 1\r\n')
  await failed
  expect(await redis.cli('GET', 'a')).toBe('1')
})

test('dropped replies leave the connection open and the write done', async () => {
  proxy.dropReplies(true)
  socket.write('SET a 1\r\n')
  await until(async () => (await redis.cli('GET', 'a')) === '1', { what: 'the write' })
  proxy.dropReplies(false)
  socket.write('PING\r\n')
  await answered('+PONG')
  expect(answers).toBe('+PONG\r\n')
})

test('dropped requests never reach the server', async () => {
  proxy.dropRequests(true)
  socket.write('SET a 1\r\n')
  await until(() => proxy.dropped > 0, { what: 'the request is dropped' })
  proxy.dropRequests(false)
  socket.write('EXISTS a\r\n')
  await answered(':0\r\n')
  expect(answers).toBe(':0\r\n')
})

test('a delay holds replies back and keeps their order when it ends', async () => {
  const from = performance.now()
  proxy.delay(200, 'replies')
  socket.write('ECHO first\r\n')
  await until(async () => (await redis.cli('INFO', 'commandstats')).includes('cmdstat_echo'), {
    what: 'the echo',
  })
  proxy.delay(0)
  socket.write('ECHO second\r\n')
  await answered('second')
  expect(answers).toBe('$5\r\nfirst\r\n$6\r\nsecond\r\n')
  // Timers count whole milliseconds.
  expect(performance.now() - from).toBeGreaterThanOrEqual(199)
})

test('a refusing proxy keeps open connections and refuses new ones until told otherwise', async () => {
  await proxy.refuse(true)
  await expect(open()).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  socket.write('PING\r\n')
  await proxy.refuse(false)
  const second = await open()
  second.write('PING\r\n')
  await answered('+PONG')
  second.destroy()
})

test('reset ends every connection with an error', async () => {
  socket.write('PING\r\n')
  await answered('+PONG')
  const failed = once(socket, 'error')
  proxy.reset()
  expect(await failed).toMatchObject([{ code: 'ECONNRESET' }])
  expect(proxy.connections).toBe(0)
})

test('a dead server ends the connections to it', async () => {
  const closed = new Promise((resolve) => socket.once('close', resolve))
  await redis.kill()
  await closed
  expect(proxy.connections).toBe(0)
  await redis.restart()
})
