import { Redis } from 'ioredis'
import type { Page } from 'playwright-core'
import type { DashboardOptions } from '../../src/dashboard/index.ts'
import type { Engine } from '../../src/engine.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import type { LocksOptions } from '../../src/options.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import type { Visitor, VisitOptions } from './browser.ts'
import { Site } from './site.ts'

/** One Redis, a dashboard that looks at it, and whoever holds leases on it. */
export class Stage implements AsyncDisposable {
  readonly server: RedisServer
  readonly site: Site
  readonly #visitor: Visitor
  readonly #client: Redis
  readonly #viewed: Engine
  readonly #locks: Locks[] = []

  constructor(visitor: Visitor, server: RedisServer, site: Site, client: Redis, viewed: Engine) {
    this.#visitor = visitor
    this.server = server
    this.site = site
    this.#client = client
    this.#viewed = viewed
  }

  static async set(visitor: Visitor, options: DashboardOptions = {}): Promise<Stage> {
    const server = await startRedis()
    const client = new Redis(server.url, { retryStrategy: () => 100 })
    // A server that a test stops is no news to the test.
    client.on('error', () => undefined)
    const viewed = redis(client)
    return new Stage(visitor, server, await Site.start(viewed, options), client, viewed)
  }

  visit(options?: VisitOptions): Promise<Page> {
    return this.#visitor.visit(this.site.url, options)
  }

  /** Locks of another process, as far as the server can tell. */
  locks(options: LocksOptions = {}): Locks {
    const locks = createLocks(redis(this.#client), { wait: 0, ...options })
    this.#locks.push(locks)
    return locks
  }

  /** The core refuses some names and owners; other software on the same server does not. */
  async grantPastTheCore(resource: string, owner: string): Promise<void> {
    await this.#viewed.acquire({ resources: [resource], owner, ttlMs: 60_000 })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#visitor.leave()
    await this.site.close()
    await Promise.all(this.#locks.map((locks) => locks.close()))
    await this.#viewed.close()
    this.#client.disconnect()
    await this.server.stop()
  }
}
