import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { startWorker } from '../../../harness/child.ts'
import { isGone } from '../../../harness/process-tree.ts'
import { tethered } from '../../../harness/tether.ts'
import { until } from '../../../harness/until.ts'

const echo = new URL('./echo-worker.mjs', import.meta.url)

interface Message {
  type: string
  value?: unknown
}

const isType = (type: string) => (message: Message) => message.type === type

test('a worker receives its arguments, environment and messages', async () => {
  await using worker = startWorker<Message>(echo, { args: ['one'], env: { GREETING: 'hello' } })
  expect(await worker.next(isType('ready'))).toEqual({ type: 'ready', value: ['one', 'hello'] })
  worker.send({ type: 'echo', value: 1 })
  worker.send({ type: 'echo', value: 2 })
  expect(await worker.next((message) => message.value === 2)).toEqual({ type: 'echo', value: 2 })
  expect(await worker.next()).toEqual({ type: 'echo', value: 1 })
})

test('a paused worker answers after it is resumed', async () => {
  await using worker = startWorker<Message>(echo)
  await worker.next(isType('ready'))
  await worker.pause()
  worker.send({ type: 'echo' })
  await expect(worker.next(isType('echo'), { withinMs: 100 })).rejects.toThrow('within 100 ms')
  await worker.resume()
  await worker.next(isType('echo'))
})

test('waiting for a worker that dies tells how it died and what it said', async () => {
  await using worker = startWorker<Message>(echo)
  await worker.next(isType('ready'))
  worker.send({ type: 'die', value: 'out of ideas' })
  await expect(worker.next(isType('echo'), { what: 'echo' })).rejects.toThrow(/ended with 7 before echo.*out of ideas/s)
  expect(await worker.exited).toBe(7)
})

test('a killed worker is gone when kill returns', async () => {
  await using worker = startWorker<Message>(echo)
  await worker.next(isType('ready'))
  await worker.pause()
  await worker.kill()
  expect(() => process.kill(worker.pid, 0)).toThrow('ESRCH')
  expect(await worker.exited).toBe('SIGKILL')
})

test('what a killed process has started dies with it', async () => {
  const [command, args] = tethered('sleep', ['3600'])
  await using worker = startWorker<Message>(echo)
  await worker.next(isType('ready'))
  worker.send({ type: 'start', value: [command, args] })
  const { value } = await worker.next(isType('started'))
  // Only then is it tied: setpriv asks the kernel for it, and becomes the program.
  await until(() => readFileSync(`/proc/${String(value)}/comm`, 'utf8') === 'sleep\n', { what: 'the program' })
  await worker.kill()
  await until(() => isGone(Number(value)), { what: 'the end of what it started' })
  expect(isGone(Number(value))).toBe(true)
})
