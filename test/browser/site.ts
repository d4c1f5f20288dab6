import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dashboard, type Dashboard, type DashboardOptions } from '../../src/dashboard/index.ts'

type Source = Parameters<typeof dashboard>[0]

/** A dashboard on an address of its own. */
export class Site implements AsyncDisposable {
  readonly #engine: Source
  #options: DashboardOptions
  #server: Server | undefined
  #dashboard: Dashboard | undefined
  #port = 0

  constructor(engine: Source, options: DashboardOptions) {
    this.#engine = engine
    this.#options = options
  }

  /** Looks at the engine often, so that tests wait for little. */
  static async start(engine: Source, options: DashboardOptions = {}): Promise<Site> {
    const site = new Site(engine, { every: '100ms', ...options })
    await site.open()
    return site
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/`
  }

  get pages(): number {
    return this.#dashboard?.counts.streams ?? 0
  }

  /** Opens it, or opens it again at the same address: with a new memory, as after a restart. */
  async open(options: DashboardOptions = {}): Promise<void> {
    this.#options = { ...this.#options, ...options }
    this.#dashboard = dashboard(this.#engine, this.#options)
    this.#server = createServer(this.#dashboard.listener)
    await new Promise<void>((resolve, reject) => {
      this.#server!.once('error', reject).listen(this.#port, '127.0.0.1', resolve)
    })
    this.#port = (this.#server.address() as AddressInfo).port
  }

  async close(): Promise<void> {
    const server = this.#server
    this.#server = undefined
    await this.#dashboard?.close()
    if (server === undefined) return
    const closed = new Promise((resolve) => server.close(resolve))
    server.closeAllConnections()
    await closed
  }

  /** The engine is whoever's made it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
