import * as driver from 'node-zookeeper-client'
import { onTestFinished } from 'vitest'
import type { ZookeeperDriver } from '../../../src/engines/zookeeper/index.ts'
import { until } from '../../../harness/until.ts'

/** What a client sees and does that knows nothing of leases. */
export interface RawClient {
  children(path: string): Promise<string[]>
  /** Undefined if there is no such znode. */
  stat(path: string): Promise<driver.Stat | undefined>
  create(path: string, mode?: number): Promise<string>
  remove(path: string): Promise<void>
  /** All znodes below, as paths. */
  tree(path: string): Promise<string[]>
}

/** Is closed when the test is over. */
export async function rawClient(servers: string): Promise<RawClient> {
  const client = driver.createClient(servers, { sessionTimeout: 10_000 })
  onTestFinished(() => client.close())
  const connected = new Promise<void>((resolve) => client.once('connected', resolve))
  client.connect()
  await connected
  const children = (path: string): Promise<string[]> => answer((done) => client.getChildren(path, done))
  return {
    children,
    stat: async (path) => (await answer<driver.Stat | null>((done) => client.exists(path, done))) ?? undefined,
    create: (path, mode = driver.CreateMode.PERSISTENT) => answer((done) => client.create(path, mode, done)),
    remove: (path) => answer((done) => client.remove(path, (error) => done(error, undefined))),
    async tree(path) {
      const found: string[] = []
      const folders = [path]
      for (let folder = folders.shift(); folder !== undefined; folder = folders.shift()) {
        for (const name of await children(folder)) {
          found.push(`${folder}/${name}`)
          folders.push(`${folder}/${name}`)
        }
      }
      return found.sort()
    },
  }
}

function answer<T>(send: (done: (error: unknown, value: T) => void) => void): Promise<T> {
  return new Promise((resolve, reject) => send((error, value) => (error ? reject(error) : resolve(value))))
}

/** The driver, and the clients that were made with it. */
export function spyingDriver(clients: driver.Client[]): ZookeeperDriver {
  return {
    ...driver,
    createClient(servers, options) {
      const client = driver.createClient(servers, options)
      clients.push(client)
      return client
    },
  }
}

/** Ends a session, as the servers do when they have not heard of it for too long. */
export async function endSession(client: driver.Client, servers: string): Promise<void> {
  let expired = false
  client.once('expired', () => (expired = true))
  const options = { sessionId: client.getSessionId(), sessionPassword: client.getSessionPassword() }
  const steal = async (): Promise<boolean> => {
    const thief = driver.createClient(servers, options as Partial<driver.Option>)
    const gone = new Promise<void>((resolve) => thief.once('disconnected', resolve))
    // At once: its true owner connects again, and takes it back.
    thief.once('connected', () => thief.close())
    if (!expired) {
      thief.connect()
      await gone
    }
    return expired
  }
  await until(steal, { what: 'the end of the session', everyMs: 200 })
}
