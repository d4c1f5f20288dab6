import { expect, test } from 'vitest'
import { AdvisorySession } from '../../../../src/engines/postgres/session.ts'
import { systemRandom } from '../../../../src/random.ts'
import { ManualClock, settled } from '../../../../harness/manual-clock.ts'

/** A server whose connections each have a process of their own, and that can fall silent. */
class Server {
  readonly clock = new ManualClock()
  readonly ended: number[] = []
  opened = 0
  isSilent = false
  /** What a pooler does. */
  pidOf = (connection: number): number => 100 + connection
  readonly session = new AdvisorySession(async () => this.#connect(), this.clock, systemRandom)

  #connect(): { query: (text: string) => Promise<unknown>; end: () => Promise<void> } {
    const number = ++this.opened
    return {
      query: async () => {
        if (this.isSilent) await new Promise(() => undefined)
        return { rows: [{ pid: String(this.pidOf(number)), locked: 'true' }] }
      },
      end: async () => void this.ended.push(number),
    }
  }
}

test('a connection that is silent for 10 s is given up, whoever cares is told, and the next one is opened', async () => {
  const server = new Server()
  let doubts = 0
  server.session.onEnd(() => doubts++)
  const first = await server.session.connection()
  // One, and one to look for a pooler, since these connections do not say who serves them.
  expect({ opened: server.opened, ended: server.ended }).toEqual({ opened: 2, ended: [2] })
  server.isSilent = true
  void first.query('SELECT', [])
  await server.clock.advance(9999)
  expect(doubts).toBe(0)
  await server.clock.advance(1)
  expect(doubts).toBe(1)
  expect(server.ended).toEqual([2, 1])
  server.isSilent = false
  const second = await server.session.connection()
  expect(second.session).not.toBe(first.session)
  await expect(first.query('SELECT', [])).rejects.toThrow('has ended')
  await server.session.close()
})

test('opening that never ends is given up as well, and tried again by the next who asks', async () => {
  const server = new Server()
  server.isSilent = true
  const failing = server.session.connection().catch(String)
  await server.clock.advance(10_000)
  expect(await failing).toContain('no answer within 10000 ms')
  server.isSilent = false
  expect((await server.session.connection()).session).toMatch(/^\d+$/)
  await server.session.close()
})

test('a server process that changes between statements is a pooler, noticed by the next statement', async () => {
  const server = new Server()
  const connection = await server.session.connection()
  server.pidOf = () => 999
  await expect(connection.query('SELECT', [])).rejects.toThrow('changing server processes')
  expect(server.ended).toContain(1)
})

test('closing ends the connection, and nothing is opened afterwards', async () => {
  const server = new Server()
  await server.session.connection()
  await server.session.close()
  expect(server.ended).toEqual([2, 1])
  await expect(server.session.connection()).rejects.toThrow('the engine is closed')
  await settled()
  expect(server.clock.timers).toBe(0)
})

test('closing before anything was opened opens nothing', async () => {
  const server = new Server()
  await server.session.close()
  expect(server.opened).toBe(0)
})
