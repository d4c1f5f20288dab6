import { startWorker, type Worker } from '../harness/child.ts'
import { shiftedClock, type ShiftedClock } from '../harness/faults/clock.ts'
import { createFolder, removeFolder } from '../harness/temporary-folder.ts'
import { until } from '../harness/until.ts'
import type { Arena } from './arena.ts'
import { canMoveClients } from './deck.ts'

/** Two sections at a time in each process, so that leases are also handed over within one. */
const LANES = 2
/** Ten processes load and connect in this time even on a machine that does much else. */
const START_MS = 180_000

type Message =
  | { readonly type: 'ready' | 'granted' | 'stood' | 'done' }
  | { readonly type: 'left'; readonly way: string }
  | { readonly type: 'between'; readonly token: string }
  | { readonly type: 'counted'; readonly what: string }

/** One client process. */
export interface Client {
  readonly name: string
  readonly worker: Worker<unknown>
  /** Its own wall clock, where the machine allows one. */
  readonly clock: ShiftedClock | undefined
  /** Sections it is in, as far as it has told. */
  holds: number
  isReady: boolean
  /** The token with which it stands still between its look and its write. */
  between: bigint | undefined
  isDone: boolean
  /** The nemesis has it in hand: it is stopped, or about to be killed. */
  isTaken: boolean
}

interface CrowdOptions {
  readonly accounts: readonly string[]
  readonly ledgerUrl: string
  readonly guard: 'lets all pass' | undefined
}

/** The clients of a run. */
export class Crowd implements AsyncDisposable {
  readonly clients: Client[] = []
  /** How often what came in the way of a section. */
  readonly counts: Record<string, number> = {}
  /** How often a lease was had in which way: by `acquire`, `using`, ... */
  readonly ways: Record<string, number> = {}
  readonly #arena: Arena
  readonly #env: Record<string, string>
  /** How clients ended that nobody had killed. */
  readonly deaths: string[] = []
  #started = 0

  constructor(arena: Arena, { accounts, ledgerUrl, guard }: CrowdOptions) {
    this.#arena = arena
    this.#env = {
      CHAOS_CONNECTOR: arena.connector,
      CHAOS_LEDGER_URL: ledgerUrl,
      CHAOS_TTL_MS: String(arena.ttlMs),
      CHAOS_ACCOUNTS: accounts.join(','),
      CHAOS_LANES: String(LANES),
      ...(guard === undefined ? {} : { CHAOS_GUARD: guard }),
    }
  }

  async start(count: number): Promise<void> {
    for (let i = 0; i < count; i++) this.add()
    const areReady = (): boolean => this.clients.every(({ isReady }) => isReady)
    await until(areReady, { what: 'all clients are ready', withinMs: START_MS, everyMs: 20 })
  }

  add(): Client {
    const index = this.#started++
    const name = `client ${index + 1}`
    const folder = createFolder('client')
    const clock = canMoveClients(this.#arena) ? shiftedClock(folder) : undefined
    const worker = startWorker(new URL('../test/process/workers/chaos.mjs', import.meta.url), {
      env: { ...this.#env, ...this.#arena.env(index), ...clock?.env, CHAOS_CLIENT: String(index + 1) },
      onMessage: (message) => this.#hear(client, message as Message),
    })
    const client: Client = {
      name,
      worker,
      clock,
      holds: 0,
      isReady: false,
      between: undefined,
      isDone: false,
      isTaken: false,
    }
    this.clients.push(client)
    void worker.exited.then((how) => {
      removeFolder(folder)
      this.#ended(client, how)
    })
    return client
  }

  /** Kills it, as the kernel does when there is no memory left. */
  async kill(client: Client): Promise<void> {
    client.isTaken = true
    await client.worker.kill()
    this.clients.splice(this.clients.indexOf(client), 1)
  }

  /**
   * Stops one client between its look at the lease and its write, until somebody else has written, and lets it go on: what it
   * writes without a guard is then written over the other's.
   */
  async sleepwalk(account: string, isOvertaken: (token: bigint) => Promise<boolean>): Promise<void> {
    const client = this.clients[0]!
    client.isTaken = true
    client.worker.send({ type: 'stand-still', account })
    await until(() => client.between !== undefined, { what: 'a client stands still', withinMs: START_MS })
    await client.worker.pause()
    const what = 'another client has written'
    await until(() => isOvertaken(client.between!), { what, withinMs: START_MS, everyMs: 20 })
    client.worker.send({ type: 'go' })
    await client.worker.resume()
    // Before the nemesis can have it: what it was stopped for must have been tried.
    await until(() => client.between === undefined, { what: 'it has gone on', withinMs: START_MS })
    client.isTaken = false
  }

  /** Ends all clients in order; those that don't end are named. */
  async end(withinMs: number): Promise<string[]> {
    for (const { worker } of this.clients) worker.send({ type: 'end' })
    const areDone = (): boolean => this.clients.every(({ isDone }) => isDone)
    await until(areDone, { what: 'all clients have ended', withinMs, everyMs: 20 }).catch(() => undefined)
    return this.clients.filter(({ isDone }) => !isDone).map(({ name }) => name)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.clients) {
      client.isTaken = true
      await client.worker[Symbol.asyncDispose]()
    }
  }

  #hear(client: Client, message: Message): void {
    if (message.type === 'ready') client.isReady = true
    if (message.type === 'granted') client.holds++
    if (message.type === 'left') {
      client.holds--
      this.ways[message.way] = (this.ways[message.way] ?? 0) + 1
    }
    if (message.type === 'between') client.between = BigInt(message.token)
    if (message.type === 'stood') client.between = undefined
    if (message.type === 'done') client.isDone = true
    if (message.type === 'counted') this.counts[message.what] = (this.counts[message.what] ?? 0) + 1
  }

  #ended(client: Client, how: number | NodeJS.Signals): void {
    if (client.isTaken || client.isDone) return
    this.deaths.push(`${client.name} ended with ${how}: ${client.worker.stderr.trim()}`)
  }
}
