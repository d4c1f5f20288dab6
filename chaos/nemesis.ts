import { setTimeout as pause } from 'node:timers/promises'
import type { Seeded } from '../sim/random.ts'
import type { Path } from '../harness/faults/network.ts'
import type { Arena, Target } from './arena.ts'
import { BadNetwork, pathOf, toAndFrom } from './bad-network.ts'
import type { Client, Crowd } from './crowd.ts'
import { cardsOf, seconds, type Fault, type FaultKind } from './deck.ts'
import { nowMs } from './now.ts'
import type { Span } from './spans.ts'

/** This many clients may be in its hands at once; the others go on. */
const MOST_CLIENTS = 3

/** Beyond every lease. */
const CLIENT_JUMP_MS = 3000

/** Breaks servers, ways and clients, one every second or two, and puts them right again. */
export class Nemesis {
  readonly faults = new Map<FaultKind, number>()
  /** By target: when it was not well. One that is not well yet has no end. */
  readonly outages = new Map<Target, { fromMs: number; toMs: number }[]>()
  /** When a clock was wrong that leases go by. */
  readonly clockTrouble: Span[] = []
  readonly #arena: Arena
  readonly #crowd: Crowd
  readonly #random: Seeded
  readonly #tell: (line: string) => void
  readonly #underWay = new Set<Promise<void>>()
  readonly #healing = new AbortController()
  #failure: { readonly error: unknown } | undefined
  #deck: FaultKind[] = []
  readonly #copiedMs: number
  readonly #network: BadNetwork

  constructor(arena: Arena, crowd: Crowd, random: Seeded, tell: (line: string) => void) {
    this.#arena = arena
    this.#crowd = crowd
    this.#random = random
    this.#tell = tell
    const cards = cardsOf(arena)
    this.#deck = (arena.first ?? []).filter((kind) => cards.includes(kind))
    for (const target of arena.targets) {
      this.outages.set(target, [])
      target.copy?.make()
    }
    this.#copiedMs = nowMs()
    this.#network = new BadNetwork(random, (target) => this.#goesDown(target))
  }

  /** Rejects if it could not break or mend something: then the run says nothing. */
  async rage(forMs: number, signal: AbortSignal): Promise<void> {
    const untilMs = nowMs() + forMs
    try {
      while (nowMs() < untilMs && !signal.aborted) {
        await this.#strike()
        await wait(Math.min(this.#random.between(600, 1800), Math.max(0, untilMs - nowMs())), signal)
      }
    } finally {
      this.#healing.abort()
      await Promise.all(this.#underWay)
    }
    if (this.#failure !== undefined) throw this.#failure.error
  }

  /** The next card of the deck that can be played; a new deck when it is used up, so that no kind is left out for long. */
  async #strike(): Promise<void> {
    if (this.#deck.length === 0) this.#deck = this.#random.shuffle(cardsOf(this.#arena))
    for (const [place, kind] of this.#deck.entries()) {
      const fault = await this.#begin(kind)
      if (fault === undefined) continue
      this.#deck.splice(place, 1)
      this.faults.set(kind, (this.faults.get(kind) ?? 0) + 1)
      this.#tell(fault.what)
      const over = this.#endLater(fault)
      this.#underWay.add(over)
      void over.then(() => this.#underWay.delete(over))
      return
    }
  }

  async #endLater({ forMs, end }: Fault): Promise<void> {
    try {
      await wait(forMs, this.#healing.signal)
      await end()
    } catch (error) {
      this.#failure ??= { error }
    }
  }

  /** Undefined if there is nobody now to do it to. */
  #begin(kind: FaultKind): Promise<Fault | undefined> {
    switch (kind) {
      case 'server frozen':
        return this.#onServer((target) => this.#freeze([target], this.#random.between(500, 3000)))
      case 'server killed':
        return this.#onServer(
          (target) => this.#kill(target),
          ({ memory }) => memory === 'kept',
        )
      case 'server emptied':
        return this.#onServer(
          (target) => this.#kill(target),
          ({ memory }) => memory === 'lost',
        )
      case 'server replaced by an empty one':
        return this.#onServer(
          (target) => this.#replace(target),
          ({ replace }) => replace !== undefined,
        )
      case 'old copy of a server put back':
        return this.#onServer(
          (target) => this.#restore(target),
          ({ copy }) => copy !== undefined && nowMs() - this.#copiedMs > copy.sitOutMs,
        )
      case 'all servers emptied in turn':
        return this.#roll()
      case 'server cut off':
        return this.#onServer((target) => this.#network.cut(target, 'both'), hasWays)
      case 'server cut off from half of the clients':
        return this.#onServer((target) => this.#network.cut(target, 'half'), hasWays)
      case 'answers lost':
        return this.#onServer((target) => this.#network.cut(target, 'answers'), hasWays)
      case 'requests and answers delayed':
        return this.#onServer((target) => this.#network.delay(target), hasWays)
      case 'server cut off from all':
        return this.#onServer((target) => this.#network.partition([target], toAndFrom(target), 'cut off from all'))
      case 'all that is sent to a server lost':
        return this.#onServer((target) => this.#network.partition([target], [{ to: target.server }], 'cut, to it'))
      case 'all that a server sends lost':
        return this.#onServer((target) => this.#network.partition([target], [{ from: target.server }], 'cut, from it'))
      case 'two servers cut off from each other':
        return this.#onTwo((one, other) => [pathOf(one, other), pathOf(other, one)], 'cut off from each other')
      case 'one server does not hear another':
        return this.#onTwo((one, other) => [pathOf(one, other)], 'the second does not hear the first')
      case 'packets lost':
        return this.#onOneOrAll((targets) => this.#network.lose(targets))
      case 'packets delayed':
        return this.#onOneOrAll((targets) => this.#network.slow(targets))
      case 'clock ahead':
        return this.#onServer((target) => this.#jump(target, 1))
      case 'clock back':
        return this.#onServer((target) => this.#jump(target, -1))
      case 'clock of a client ahead':
        return this.#onClient((client) => this.#jumpClient(client, 1))
      case 'clock of a client back':
        return this.#onClient((client) => this.#jumpClient(client, -1))
      case 'majority frozen':
        return this.#freezeMajority()
      case 'client stopped':
        return this.#onClient((client) => this.#stop(client))
      case 'client killed':
        return this.#onClient((client) => this.#killClient(client))
    }
  }

  /** At most a minority of the servers is away at any time (where there is one server: that one). */
  async #onServer(
    begin: (target: Target) => Promise<Fault | undefined>,
    isFit: (target: Target) => boolean = () => true,
  ): Promise<Fault | undefined> {
    const well = this.#well()
    const { targets, majority } = this.#arena
    const away = targets.length - well.length
    if (away >= Math.max(1, targets.length - majority)) return undefined
    const fit = well.filter(isFit)
    return fit.length === 0 ? undefined : begin(await this.#oneOf(fit))
  }

  /** Every second time the leader, where there is one. */
  async #oneOf(fit: readonly Target[]): Promise<Target> {
    const choice = this.#random.pick(fit)
    if (this.#arena.leader === undefined || this.#random.chance(0.5)) return choice
    // Nobody leads during an election.
    const leader = await this.#arena.leader().catch(() => undefined)
    return fit.find(({ server }) => server === leader) ?? choice
  }

  /** The leader is often one of the two. A third one hears both, so nobody else may be away. */
  async #onTwo(pathsOf: (one: Target, other: Target) => Path[], what: string): Promise<Fault | undefined> {
    const { targets } = this.#arena
    if (this.#well().length < targets.length) return undefined
    const one = await this.#oneOf(targets)
    const other = this.#random.pick(targets.filter((target) => target !== one))
    const pair = this.#random.chance(0.5) ? ([one, other] as const) : ([other, one] as const)
    return this.#network.partition(pair, pathsOf(...pair), what)
  }

  /** A bad line, or a bad network. */
  async #onOneOrAll(begin: (targets: readonly Target[]) => Fault | undefined): Promise<Fault | undefined> {
    const { targets } = this.#arena
    const isAll = this.#random.chance(0.5) && this.#well().length === targets.length
    return isAll ? begin(targets) : this.#onServer(async (target) => begin([target]))
  }

  async #freezeMajority(): Promise<Fault | undefined> {
    const { targets, majority } = this.#arena
    const well = this.#well()
    const count = well.length - majority + 1
    if (well.length < targets.length || count < 1) return undefined
    return this.#freeze(this.#random.shuffle(well).slice(0, count), this.#random.between(500, 2500))
  }

  async #freeze(targets: readonly Target[], forMs: number): Promise<Fault> {
    const ends = targets.map((target) => this.#goesDown(target))
    for (const { server } of targets) await server.freeze()
    return {
      what: `${targets.map(({ name }) => name).join(', ')} frozen for ${seconds(forMs)}`,
      forMs,
      end: async () => {
        for (const { server } of targets) await server.thaw()
        for (const end of ends) end()
      },
    }
  }

  async #kill(target: Target): Promise<Fault> {
    const end = this.#goesDown(target)
    const forMs = this.#random.between(200, 1500)
    await target.server.kill()
    return {
      what: `${target.name} killed, comes back ${target.memory === 'kept' ? 'with its data' : 'empty'} after ${seconds(forMs)}`,
      forMs,
      end: async () => {
        await target.server.restart()
        end(target.sitOutMs)
      },
    }
  }

  async #replace(target: Target): Promise<Fault> {
    const end = this.#goesDown(target)
    return {
      what: `${target.name} is replaced by an empty server that has been running for long`,
      forMs: 0,
      end: async () => {
        await target.replace!()
        end(target.sitOutMs)
      },
    }
  }

  async #restore(target: Target): Promise<Fault> {
    const end = this.#goesDown(target)
    const forMs = this.#random.between(200, 1500)
    await target.server.kill()
    return {
      what: `${target.name} killed, comes back with an old copy of its data after ${seconds(forMs)}`,
      forMs,
      end: async () => {
        const { restore, sitOutMs } = target.copy!
        await restore()
        end(sitOutMs)
      },
    }
  }

  /** One after the other, each up again before the next one goes: as orchestrators do it. */
  async #roll(): Promise<Fault | undefined> {
    const { targets } = this.#arena
    if (this.#well().length < targets.length) return undefined
    const gapsMs = targets.map(() => this.#random.between(50, 1500))
    const ends = targets.map((target) => this.#goesDown(target))
    return {
      what: `all servers are emptied in turn, ${gapsMs.map(seconds).join(', ')} apart`,
      forMs: 0,
      end: async () => {
        for (const [index, { server }] of targets.entries()) {
          await server.kill()
          await server.restart()
          await wait(gapsMs[index]!, NEVER)
        }
        for (const [index, end] of ends.entries()) end(targets[index]!.sitOutMs)
      },
    }
  }

  async #jump(target: Target, direction: 1 | -1): Promise<Fault> {
    const end = this.#goesDown(target)
    const { shift, jumpMs, isForLeases = true } = target.clock!
    const forMs = this.#random.between(500, 4000)
    const fromMs = nowMs()
    await shift(direction * jumpMs)
    return {
      what: `${target.name}: its clock jumps ${seconds(jumpMs)} ${direction > 0 ? 'ahead' : 'back'} for ${seconds(forMs)}`,
      forMs,
      end: async () => {
        await shift(0)
        if (isForLeases) this.clockTrouble.push({ fromMs, toMs: nowMs() })
        end()
      },
    }
  }

  async #onClient(begin: (client: Client) => Promise<Fault>): Promise<Fault | undefined> {
    const { clients } = this.#crowd
    const free = clients.filter(({ isReady, isTaken }) => isReady && !isTaken)
    if (clients.length - free.length >= MOST_CLIENTS || free.length === 0) return undefined
    const holders = free.filter(({ holds }) => holds > 0)
    return begin(this.#random.pick(holders.length > 0 && this.#random.chance(0.8) ? holders : free))
  }

  async #stop(client: Client): Promise<Fault> {
    client.isTaken = true
    await client.worker.pause()
    const forMs = this.#random.between(0.3, 2.5) * this.#arena.ttlMs
    return {
      what: `${client.name} stopped for ${seconds(forMs)}`,
      forMs,
      end: async () => {
        await client.worker.resume()
        client.isTaken = false
      },
    }
  }

  /** It goes on meanwhile: a lease must not seem longer to it than it is. */
  async #jumpClient(client: Client, direction: 1 | -1): Promise<Fault> {
    client.isTaken = true
    client.clock!.shift(direction * CLIENT_JUMP_MS)
    const forMs = this.#random.between(500, 4000)
    return {
      what: `${client.name}: its clock jumps ${seconds(CLIENT_JUMP_MS)} ${direction > 0 ? 'ahead' : 'back'} for ${seconds(forMs)}`,
      forMs,
      end: async () => {
        client.clock!.shift(0)
        client.isTaken = false
      },
    }
  }

  async #killClient(client: Client): Promise<Fault> {
    await this.#crowd.kill(client)
    const forMs = this.#random.between(200, 1000)
    return {
      what: `${client.name} killed, another one comes after ${seconds(forMs)}`,
      forMs,
      end: async () => void this.#crowd.add(),
    }
  }

  #well(): Target[] {
    return this.#arena.targets.filter((target) => (this.outages.get(target)!.at(-1)?.toMs ?? 0) <= nowMs())
  }

  /** Returns what ends the outage, at once or this much later. */
  #goesDown(target: Target): (afterMs?: number) => void {
    const outage = { fromMs: nowMs(), toMs: Infinity }
    this.outages.get(target)!.push(outage)
    return (afterMs = 0) => {
      outage.toMs = nowMs() + afterMs
    }
  }
}

const NEVER = new AbortController().signal

function hasWays({ ways }: Target): boolean {
  return ways.length > 0
}

async function wait(ms: number, signal: AbortSignal): Promise<void> {
  // Aborted: it is not waited for any longer, and that is all.
  await pause(ms, undefined, { signal }).catch(() => undefined)
}
