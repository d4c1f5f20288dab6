import { sleep } from '../src/clock.ts'
import type { Subscriber } from '../src/engines/redis/client.ts'
import { MachineClock, Time } from './clock.ts'
import { Network, type Connection, type Link } from './network.ts'
import { Process } from './process.ts'
import { Seeded } from './random.ts'
import { Server } from './server.ts'
import type { Wire, Wiring } from './client.ts'
import { SimSubscriber } from './subscriber.ts'

export interface SubscriptionsOutcome {
  /** What was neither heard nor told as a gap in time, and what was left at the end. */
  readonly wrong: readonly string[]
  readonly heard: number
  readonly gaps: number
}

/**
 * How long after the last trouble a message may stay unheard without a gap being told: an answer that does not come, the pause
 * before the next attempt, and that attempt. Where nothing but silence happens: the next look at the connection, and the proof.
 */
const BOUND_MS = { any: 9000, silence: 5500 }
const CHANNELS = ['a', 'b', 'c']
const BUSY_MS = 80_000
const LONGEST_STAY_MS = 12_000

interface Message {
  readonly channel: string
  readonly text: string
  readonly atMs: number
}

/**
 * The shipped code that keeps subscriptions alive, alone with a server that publishes, on connections that are reset, cut,
 * half open, or dead without a word. Of every message while somebody listens: it is heard, or a gap is told, in time.
 */
export class SubscriptionsRun {
  readonly #random: Seeded
  readonly #time = new Time()
  readonly #network: Network
  readonly #server: Server
  readonly #process: Process
  readonly #subscriber: Subscriber
  readonly #connections: () => number
  readonly #isSilenceOnly: boolean
  /** Messages that those who listen have not heard of. */
  readonly #unheard = new Map<string, Message[]>()
  readonly #wrong: string[] = []
  #heard = 0
  #gaps = 0
  #troubleMs = 0
  #requests = 0
  #isOver = false

  /** Without `proves`, nobody looks after the connections; with `wire`, the subscriber is that of a real driver. */
  constructor(seed: number | string, { proves = true, wire }: { proves?: boolean; wire?: Wire | undefined } = {}) {
    const random = new Seeded(`lines ${seed}`)
    this.#random = random
    const latency = { baseMs: random.pick([0.2, 1, 20]), jitterMs: random.pick([0.1, 1, 20]) }
    this.#network = new Network(this.#time, latency)
    const clock = new MachineClock(this.#time)
    this.#server = new Server('n0', this.#time, clock, random.fork('server'), { persistence: 'none' })
    this.#process = new Process('p0', this.#time, new MachineClock(this.#time), random.fork('timers'))
    this.#isSilenceOnly = random.chance(0.4)
    const wiring: Wiring = {
      network: this.#network,
      process: this.#process,
      server: this.#server,
      random: random.fork('subscriber'),
      driver: 'reject',
      describe: ([command = []]) => ({
        steps: [{ id: ++this.#requests, what: command.join(' '), owner: '', former: '' }],
      }),
      sent: () => undefined,
      heard: () => undefined,
      dropped: () => undefined,
    }
    if (wire === undefined) {
      const simulated = new SimSubscriber(wiring, proves)
      this.#subscriber = simulated
      this.#connections = () => simulated.connections
    } else {
      const wired = wire(wiring)
      this.#subscriber = wired.redis.subscriber(this.#process, random.fork('retries'))!
      this.#connections = () => wired.subscriptions
    }
    this.#subscriber.onGap((channel) => {
      this.#gaps++
      this.#unheard.get(channel)?.splice(0)
    })
  }

  async run(): Promise<SubscriptionsOutcome> {
    for (const channel of CHANNELS) void this.#listen(channel, this.#random.fork(`listener of ${channel}`))
    this.#publishLater(this.#random.fork('publisher'))
    this.#breakLater(this.#random.fork('faults'))
    const random = this.#random.fork('end')
    await this.#time.run(random.chance(0.3) ? random.between(100, BUSY_MS) : BUSY_MS + 2 * BOUND_MS.any)
    this.#isOver = true
    await this.#subscriber.close()
    this.#unheard.clear()
    await this.#time.run(this.#time.nowMs + LONGEST_STAY_MS + 1)
    const connections = this.#connections()
    if (connections > 0) this.#wrong.push(`${connections} connections are left`)
    if (this.#process.timers > 0) this.#wrong.push(`${this.#process.timers} timers are left`)
    return { wrong: this.#wrong, heard: this.#heard, gaps: this.#gaps }
  }

  /** Somebody waits for a while, leaves, and comes back soon or late. */
  async #listen(channel: string, random: Seeded): Promise<void> {
    while (!this.#isOver && this.#time.nowMs < BUSY_MS) {
      await sleep(this.#process, random.pick([1, random.between(1, 50), random.between(1, 9000)]))
      try {
        await this.#subscriber.subscribe(channel, (text) => this.#hear(channel, text))
      } catch {
        // A waiter would poll.
        continue
      }
      if (!this.#isOver) this.#unheard.set(channel, [])
      await sleep(this.#process, random.pick([random.between(1, 50), random.between(100, 3000), LONGEST_STAY_MS]))
      this.#unheard.delete(channel)
      const ended = this.#subscriber.unsubscribe(channel)
      if (random.chance(0.5)) await ended
    }
  }

  #hear(channel: string, text: string): void {
    this.#heard++
    const unheard = this.#unheard.get(channel)
    const index = unheard?.findIndex((message) => message.text === text) ?? -1
    if (index >= 0) unheard!.splice(index, 1)
  }

  #publishLater(random: Seeded): void {
    this.#time.after(random.between(5, 400), () => {
      const message = { channel: random.pick(CHANNELS), text: String(++this.#requests), atMs: this.#time.nowMs }
      if (this.#server.isUp && !this.#server.isFrozen) {
        this.#unheard.get(message.channel)?.push(message)
        this.#server.redis.run(['PUBLISH', message.channel, message.text])
        this.#time.after(BOUND_MS.any, () => this.#look(message))
      }
      if (this.#time.nowMs < BUSY_MS + BOUND_MS.any) this.#publishLater(random)
    })
  }

  #look(message: Message): void {
    if (this.#unheard.get(message.channel)?.includes(message) !== true) return
    const boundMs = this.#isSilenceOnly ? BOUND_MS.silence : BOUND_MS.any
    const dueMs = Math.max(message.atMs, this.#troubleMs) + boundMs
    if (this.#time.nowMs < dueMs) return this.#time.at(dueMs, () => this.#look(message))
    const { atMs, channel } = message
    this.#wrong.push(`what was published on ${channel} at ${Math.round(atMs)} ms was not heard, and no gap was told`)
    this.#unheard.delete(channel)
  }

  #breakLater(random: Seeded): void {
    // Some come on top of one another; after most there is time enough for everything to be well again.
    const calmMs = 1.5 * BOUND_MS.any
    this.#time.after(random.pick([random.between(1, 300), random.between(1000, 9000), calmMs, calmMs]), () => {
      const heal = this.#break(random)
      const forMs = heal === undefined ? 0 : random.pick([random.between(1, 200), random.between(200, 7000)])
      this.#troubleMs = this.#time.nowMs + forMs
      this.#time.after(forMs, () => {
        heal?.()
        if (this.#time.nowMs < BUSY_MS) this.#breakLater(random)
      })
    })
  }

  /** Returns how it ends, if it does: what has fallen silent stays so. */
  #break(random: Seeded): (() => void) | undefined {
    const link: Link = this.#network.link(this.#process.name, this.#server.name)
    const connections: readonly Connection[] = [...link.connections]
    const way = random.pick(['both', 'to', 'from'] as const)
    if (this.#isSilenceOnly || random.chance(0.4)) {
      for (const connection of connections) connection.forget(way)
      return undefined
    }
    switch (random.pick(['reset', 'cut', 'freeze', 'crash'] as const)) {
      case 'reset':
        for (const connection of connections) connection.reset(random.int(0, 2))
        return undefined
      case 'cut':
        if (way !== 'from') link.cutTo++
        if (way !== 'to') link.cutFrom++
        return () => {
          link.cutTo = 0
          link.cutFrom = 0
          link.heal(random.chance(0.5))
        }
      case 'freeze':
        this.#server.isFrozen = true
        return () => this.#server.thaw()
      case 'crash':
        this.#server.crash()
        return () => this.#server.restart('none')
    }
  }
}
