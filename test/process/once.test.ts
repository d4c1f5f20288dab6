import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startWorker, type Worker } from '../../harness/child.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { isType, type Message } from './setup.ts'

interface Server extends AsyncDisposable {
  readonly url: string
}

const STORES: Readonly<Record<string, () => Promise<Server>>> = {
  postgres: startPostgres,
  mariadb: startMariadb,
  async mongodb() {
    const server = await startMongodb({ replicaSet: true })
    // The server ends the transaction of a process that is gone after this time; a minute by default.
    await server.command({ setParameter: 1, transactionLifetimeLimitSeconds: 3 })
    return server
  },
  redis: startRedis,
}

let keys = 0

describe.each(Object.entries(STORES))('%s', (store, start) => {
  let server: Server
  beforeAll(async () => {
    server = await start()
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  const worker = (key: string, token: number, dies = ''): Worker<Message> =>
    startWorker<Message>(new URL('./workers/once.mjs', import.meta.url), {
      env: {
        ONCE_STORE: store,
        ONCE_URL: server.url,
        ONCE_KEY: key,
        ONCE_TOKEN: String(token),
        ONCE_DIES: dies,
      },
    })
  const resultOf = async (key: string, token: number): Promise<Message> => {
    await using repeating = worker(key, token)
    return await repeating.next(isType('result'), { withinMs: 30_000, what: 'a result' })
  }

  test('another process that repeats a call gets the result of the first', async () => {
    const key = `effect ${++keys}`
    expect(await resultOf(key, 1)).toMatchObject({ ran: true, value: 'a receipt', token: '1', count: 1 })
    expect(await resultOf(key, 2)).toMatchObject({ ran: false, value: 'a receipt', token: '1', count: 1 })
  })

  test('killed after the commit, before it could tell anybody: the next one gets the result', async () => {
    const key = `effect ${++keys}`
    await using killed = worker(key, 1, 'after the commit')
    expect(await killed.exited).toBe('SIGKILL')
    expect(await resultOf(key, 2)).toMatchObject({ ran: false, value: 'a receipt', token: '1', count: 1 })
  })

  test('killed when the call was just sent: whatever became of it, there is one effect', async () => {
    const key = `effect ${++keys}`
    await using killed = worker(key, 1, 'when it is sent')
    expect(await killed.exited).toBe('SIGKILL')
    expect(await resultOf(key, 2)).toMatchObject({ value: 'a receipt', count: 1 })
  })

  // A script on Redis is one step: there is no middle.
  test.skipIf(store === 'redis')(
    'killed in the middle of the work: nothing has happened, and the next one runs it',
    async () => {
      const key = `effect ${++keys}`
      await using killed = worker(key, 1, 'in the work')
      await killed.next(isType('inside'), { withinMs: 30_000, what: 'its work' })
      await killed.kill()
      expect(await resultOf(key, 2)).toMatchObject({ ran: true, value: 'a receipt', token: '2', count: 1 })
    },
  )

  test.skipIf(store === 'redis')(
    'killed right before the commit: nothing has happened, and the next one runs it',
    async () => {
      const key = `effect ${++keys}`
      await using killed = worker(key, 1, 'before the commit')
      expect(await killed.exited).toBe('SIGKILL')
      expect(await resultOf(key, 2)).toMatchObject({ ran: true, value: 'a receipt', token: '2', count: 1 })
    },
  )
})
