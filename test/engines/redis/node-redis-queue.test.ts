import { tracingChannel } from 'node:diagnostics_channel'
import { setImmediate } from 'node:timers/promises'
import { createClient } from 'redis'
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from 'vitest'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import type { Done } from '../../../src/engines/redis/client.ts'
import { createLocks } from '../../../src/locks.ts'
import { nodeRedis } from '../../../src/engines/redis/drivers/node-redis.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { piece } from '../../../src/engines/redis/pieces.ts'

let server: RedisServer

beforeAll(async () => {
  server = await startRedis()
})
afterEach(() => server.cli('FLUSHALL'))
afterAll(() => server.stop())

/** A client of the user, and a way to send by it as the engine does. */
async function connected(options: object = {}, prepare: (client: object) => void = () => undefined) {
  const client = createClient({ socket: { host: server.host, port: server.port }, ...options })
  await client.on('error', () => undefined).connect()
  onTestFinished(() => (client.isOpen ? client.destroy() : undefined))
  prepare(client)
  const ours = nodeRedis(client)
  const ask = (words: readonly string[], done: Done): void => ours.send!([piece(...words)], done)
  const send = (...words: string[]): Promise<unknown> =>
    new Promise((resolve, reject) => {
      ask(words, (error, reply) => (error === undefined ? resolve(reply) : reject(error)))
    })
  return { client, ask, send }
}

interface Queue {
  addCommand(args: readonly string[], options?: object): Promise<unknown>
}

function queueOf(client: object): Queue {
  return (client as { _getQueue(): Queue })._getQueue()
}

test('our commands and those of the user are carried out in the order in which they were sent', async () => {
  const { client, send } = await connected()
  const add = (word: string): Promise<unknown> => send('RPUSH', 'order', word)
  await Promise.all([
    add('1'),
    client.rPush('order', '2'),
    add('3'),
    client.multi().rPush('order', '4').rPush('order', '5').exec(),
    add('6'),
  ])
  await Promise.all([
    client.multi().rPush('order', '7').rPush('order', '8').exec(),
    add('9'),
    client.rPush('order', 'a'),
  ])
  expect((await client.lRange('order', 0, -1)).join('')).toBe('123456789a')
  expect(Object.hasOwn(queueOf(client), 'addCommand')).toBe(false)
})

test('a command whose connection is lost is rejected, and the next one is answered', async () => {
  const { ask, send } = await connected()
  const lost = new Promise((resolve) => {
    ask(['BLPOP', 'nothing', '0'], resolve)
  })
  await setImmediate()
  await server.cli('CLIENT', 'KILL', 'ID', await idOfBlocked())
  await expect(lost).resolves.toMatchObject({ message: 'Socket closed unexpectedly' })
  await expect(send('PING')).resolves.toBe('PONG')
})

/** Asked for by another client: this one is waiting. */
async function idOfBlocked(): Promise<string> {
  const list = await server.cli('CLIENT', 'LIST')
  return /^id=(\d+).*cmd=blpop/m.exec(list)?.[1] ?? 'none'
}

test('what is asked as soon as a client is destroyed is rejected, too', async () => {
  const { client, ask, send } = await connected()
  const again = new Promise((resolve) => {
    ask(['BLPOP', 'nothing', '0'], () => ask(['PING'], resolve))
  })
  await setImmediate()
  client.destroy()
  await expect(again).resolves.toMatchObject({ message: 'The client is closed' })
  await expect(send('PING')).rejects.toThrow('The client is closed')
})

test('a command answers while commands are traced, and the next one is traced to its end', async () => {
  const { send } = await connected()
  const channel = tracingChannel('node-redis:command')
  const ended: unknown[] = []
  const subscribers = { asyncEnd: (context: object) => ended.push(Reflect.get(context, 'result')) }
  channel.subscribe(subscribers as never)
  onTestFinished(() => channel.unsubscribe(subscribers as never))
  await expect(send('ECHO', 'first')).resolves.toBe('first')
  await expect(send('ECHO', 'second')).resolves.toBe('second')
  expect(ended).toEqual(['first', 'second'])
})

/** What others make of `sendCommand` of a client. They note what they see of each command. */
type Wrap = (answer: () => Promise<unknown>, seen: (what: unknown) => void) => unknown

const asks: Wrap = (send, seen) => {
  const answer = send()
  answer.then(seen, (error: Error) => seen(error.message))
  return answer
}
const awaits: Wrap = async (send, seen) => {
  try {
    const reply = await send()
    seen(reply)
    return reply
  } catch (error) {
    seen((error as Error).message)
    throw error
  }
}
const waitsForTheEnd: Wrap = (send, seen) => {
  const answer = send()
  void answer.catch((error: Error) => seen(error.message)).finally(() => seen('end'))
  return answer
}

test.each<[string, Wrap, readonly unknown[]]>([
  ['asks for the outcome', asks, ['ERR unknown', 'first', 'ERR unknown', 'last']],
  ['awaits the outcome', awaits, ['ERR unknown', 'first', 'ERR unknown', 'last']],
  ['waits for the end', waitsForTheEnd, ['ERR unknown', 'end', 'end', 'ERR unknown', 'end', 'end']],
])('somebody who %s of a command hears of it, and so does who sent it, once', async (_, wrap, heard) => {
  const seen: unknown[] = []
  const { client, ask } = await connected()
  wrapped(client, wrap, (what) => seen.push(typeof what === 'string' ? what.slice(0, 11) : what))
  const outcomes: unknown[] = []
  for (const words of [['NOTHING'], ['ECHO', 'first'], ['NOTHING'], ['ECHO', 'last']]) {
    await new Promise<void>((resolve) => {
      ask(words, (error, reply) => {
        outcomes.push(error === undefined ? reply : 'failed')
        resolve()
      })
    })
  }
  expect(outcomes).toEqual(['failed', 'first', 'failed', 'last'])
  await expect.poll(() => seen).toEqual(heard)
})

test('a command that is on its way calls back though somebody who looks at it throws', async () => {
  const { client, send } = await connected()
  const restore = wrapped(client, (answer) => {
    void answer()
    throw new Error('of somebody else')
  })
  await expect(send('ECHO', 'first')).resolves.toBe('first')
  restore()
  await expect(send('ECHO', 'second')).resolves.toBe('second')
})

/** All that was made of a client, and the client that is given to users, inherits from the one that it calls `_self`. */
function wrapped(client: object, wrap: Wrap, seen: (what: unknown) => void = () => undefined): () => void {
  const { _self: self } = client as { _self: { sendCommand: (...given: unknown[]) => Promise<unknown> } }
  const { sendCommand } = self
  const replaced = function (this: object, ...given: unknown[]): unknown {
    return wrap(() => sendCommand.apply(this, given), seen)
  }
  Object.assign(self, { sendCommand: replaced })
  return () => Reflect.deleteProperty(self, 'sendCommand')
}

test('somebody else who looks at the commands of a client sees ours, too', async () => {
  const { client, send } = await connected()
  const queue = queueOf(client)
  const seen: string[] = []
  queue.addCommand = (...given) => {
    seen.push(given[0].join(' '))
    return (Object.getPrototypeOf(queue) as Queue).addCommand.call(queue, ...given)
  }
  await expect(send('ECHO', 'seen')).resolves.toBe('seen')
  expect(seen).toEqual(['ECHO seen'])
})

test('a limit of the number of commands is kept', async () => {
  const { send } = await connected({ commandsQueueMaxLength: 10 })
  const waiting = Array.from({ length: 10 }, () => send('BLPOP', 'late', '0'))
  await setImmediate()
  await expect(send('PING')).rejects.toThrow('The queue is full')
  await server.cli('RPUSH', 'late', ...waiting.map(() => 'x'))
  await Promise.all(waiting)
})

test('a client that has no such queue, as that of 5.0, is asked in the ordinary way', async () => {
  const { send } = await connected({}, (client) => Object.assign(client, { _getQueue: undefined }))
  await expect(send('ECHO', 'x')).resolves.toBe('x')
})

test('two engines share a client', async () => {
  const { client } = await connected()
  const both = ['some:', 'other:'].map((prefix) => createLocks(redis(client, { prefix })))
  let inside = 0
  const sections = both.flatMap((locks) =>
    Array.from({ length: 20 }, (_, i) => locks.using(`shared:${i}`, async () => void inside++)),
  )
  await Promise.all(sections)
  expect(inside).toBe(40)
  await Promise.all(both.map((locks) => locks.close()))
})
