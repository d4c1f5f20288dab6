import type { HistoryEvent } from './history.ts'
import type { Network } from './network.ts'
import type { Process } from './process.ts'
import type { Denied } from './redis.ts'
import type { Memory, Return, Server } from './server.ts'

/** One thing that goes wrong, as data. Nodes and processes are named by number; `at` and `for` count from the start. */
export type Fault = { readonly atMs: number } & (
  | ({ readonly kind: 'delay'; readonly ms: number; readonly forMs: number } & OnLink)
  | ({ readonly kind: 'lose-request' | 'lose-reply'; readonly chance: number; readonly forMs: number } & OnLink)
  /** Of what is on its way, `arriving` requests still take effect, `lateMs` later. */
  | ({ readonly kind: 'reset'; readonly arriving: number; readonly lateMs: number } & OnLink)
  /** Neither direction, or one of them; when it heals, the connections go on or turn out to be dead. */
  | ({
      readonly kind: 'cut'
      readonly way: 'both' | 'to' | 'from'
      readonly reset: boolean
      readonly forMs: number
    } & OnLink)
  /** Subscriber connections fall silent in one direction or both, for good, and nobody is told. */
  | ({ readonly kind: 'forget'; readonly way: 'both' | 'to' | 'from' } & OnLink)
  | { readonly kind: 'slow'; readonly node: number; readonly ms: number; readonly forMs: number }
  | { readonly kind: 'freeze'; readonly node: number; readonly forMs: number }
  | { readonly kind: 'crash'; readonly node: number; readonly memory: Memory; readonly forMs: number }
  /** An empty server that has been running for long takes its place. */
  | { readonly kind: 'replace'; readonly node: number; readonly upMs: number; readonly forMs: number }
  /** It comes back with the data it had this long before. */
  | { readonly kind: 'restore'; readonly node: number; readonly copyMs: number; readonly forMs: number }
  /** Its users may not do something, or it has no memory left. */
  | { readonly kind: 'deny'; readonly node: number; readonly what: Denied; readonly forMs: number }
  /** Others put a list where a lock or a counter was. */
  | { readonly kind: 'spoil'; readonly node: number; readonly key: string; readonly forMs: number }
  /** It runs other scripts than it was given: an acquisition does not look whether the lock is free. */
  | { readonly kind: 'alter'; readonly node: number; readonly forMs: number }
  | { readonly kind: 'flushall' | 'noscript' | 'failover'; readonly node: number }
  | { readonly kind: 'evict'; readonly node: number; readonly key: string }
  | { readonly kind: 'cut-replica'; readonly node: number; readonly forMs: number }
  | { readonly kind: 'jump'; readonly node: number; readonly ms: number }
  | { readonly kind: 'jump-process'; readonly process: number; readonly ms: number }
  | { readonly kind: 'drift'; readonly node: number; readonly rate: number }
  | { readonly kind: 'drift-process'; readonly process: number; readonly rate: number }
  /** After this many looks at the clock or messages sent, or when it next writes to the store; 0: between two events. */
  | { readonly kind: 'pause'; readonly process: number; readonly ms: number; readonly steps: number | 'write' }
  | { readonly kind: 'crash-process'; readonly process: number; readonly backMs: number }
  /** It closes its locks, after this many steps of its code, from now or from an answer on, and begins anew. */
  | {
      readonly kind: 'close-process'
      readonly process: number
      readonly steps: number
      readonly since: 'now' | 'answer'
      readonly backMs: number
    }
)

interface OnLink {
  readonly process: number
  /** -1 is the store. */
  readonly node: number
}

export interface Targets {
  readonly network: Network
  readonly servers: readonly Server[]
  process(index: number): Process
  readonly record: (event: HistoryEvent) => void
  /** Clocks have changed: what a lease has left may have, too. */
  clockChanged(process: number): void
  crashProcess(index: number, backMs: number): void
  closeProcess(fault: Extract<Fault, { kind: 'close-process' }>): void
  /** A node has come back. */
  returned(): void
}

/** Lets a schedule of faults happen, and heals all of it at the end. */
export class Nemesis {
  readonly #targets: Targets
  readonly #healing = new Set<() => void>()
  isOver = false

  constructor(targets: Targets, faults: readonly Fault[]) {
    this.#targets = targets
    for (const fault of faults) targets.network.time.at(fault.atMs, () => this.#begin(fault))
  }

  /** Everything heals, and nothing goes wrong any more. */
  healAll(): void {
    this.isOver = true
    for (const heal of this.#healing) heal()
    this.#healing.clear()
  }

  #begin(fault: Fault): void {
    if (this.isOver) return
    const { network, record } = this.#targets
    const { atMs: _at, ...rest } = fault
    const ms = 'ms' in fault ? fault.ms : 'forMs' in fault ? fault.forMs : 0
    record({
      at: network.time.nowMs,
      kind: 'fault',
      name: fault.kind,
      on: this.#on(fault),
      text: JSON.stringify(rest),
      ms,
    })
    const heal = this.#apply(fault)
    if (heal === undefined || !('forMs' in fault)) return
    this.#healing.add(heal)
    network.time.after(fault.forMs, () => {
      if (this.#healing.delete(heal)) heal()
    })
  }

  #on(fault: Fault): string {
    const names = []
    if ('process' in fault) names.push(`p${fault.process}`)
    if ('node' in fault) names.push(fault.node < 0 ? 'store' : `n${fault.node}`)
    return names.join('-')
  }

  /** Returns how it ends, if it does. */
  #apply(fault: Fault): (() => void) | undefined {
    if ('process' in fault && 'node' in fault) return this.#onLink(fault)
    if ('node' in fault) return this.#onServer(fault, this.#targets.servers[fault.node]!)
    return this.#onProcess(fault)
  }

  #onLink(fault: Extract<Fault, OnLink>): (() => void) | undefined {
    const server = fault.node < 0 ? 'store' : this.#targets.servers[fault.node]!.name
    const link = this.#targets.network.link(this.#targets.process(fault.process).name, server)
    switch (fault.kind) {
      case 'delay':
        link.delayMs += fault.ms
        return () => void (link.delayMs -= fault.ms)
      case 'lose-request':
        link.loseRequest = fault.chance
        return () => void (link.loseRequest = 0)
      case 'lose-reply':
        link.loseReply = fault.chance
        return () => void (link.loseReply = 0)
      case 'reset':
        for (const connection of link.connections) connection.reset(fault.arriving, fault.lateMs)
        return undefined
      case 'forget':
        for (const connection of link.connections)
          if (connection.isSubscriber || connection.endsSilence) connection.forget(fault.way)
        return undefined
      case 'cut': {
        const [to, from] = [fault.way !== 'from' ? 1 : 0, fault.way !== 'to' ? 1 : 0]
        link.cutTo += to
        link.cutFrom += from
        return () => {
          link.cutTo -= to
          link.cutFrom -= from
          if (!link.isCut) link.heal(fault.reset)
        }
      }
    }
  }

  #onServer(fault: Exclude<Extract<Fault, { node: number }>, OnLink>, server: Server): (() => void) | undefined {
    switch (fault.kind) {
      case 'slow':
        server.slowMs += fault.ms
        return () => void (server.slowMs -= fault.ms)
      case 'freeze':
        server.isFrozen = true
        return () => server.thaw()
      case 'crash':
        return this.#down(server, fault.memory)
      case 'replace':
        return this.#down(server, 'none', { upMs: fault.upMs })
      case 'restore':
        return this.#down(server, 'kept', { copyMs: fault.copyMs })
      case 'deny': {
        const { redis } = server
        redis.denied.add(fault.what)
        return () => void redis.denied.delete(fault.what)
      }
      case 'spoil': {
        const { redis } = server
        redis.set(fault.key, { value: ['somebody else’s'], expiresMs: Infinity })
        return () => redis.set(fault.key, undefined)
      }
      case 'alter': {
        const { redis } = server
        redis.isAltered = true
        return () => void (redis.isAltered = false)
      }
      case 'flushall':
        server.redis.run(['FLUSHALL'])
        return undefined
      case 'noscript':
        server.redis.flushScripts()
        return undefined
      case 'failover':
        if (server.isUp) server.failOver()
        return undefined
      case 'evict':
        server.redis.run(['DEL', fault.key])
        return undefined
      case 'cut-replica': {
        const { replica } = server
        if (replica === undefined) return undefined
        replica.isCut = true
        return () => void (replica.isCut = false)
      }
      case 'jump':
        server.clock.jump(fault.ms)
        return undefined
      case 'drift':
        server.clock.drift(fault.rate)
        return undefined
    }
  }

  #down(server: Server, memory: Memory, how: Return = {}): (() => void) | undefined {
    if (!server.isUp) return undefined
    server.crash()
    return () => {
      server.restart(memory, how)
      this.#targets.returned()
    }
  }

  #onProcess(fault: Exclude<Fault, { node: number }>): undefined {
    const process = this.#targets.process(fault.process)
    switch (fault.kind) {
      case 'jump-process':
        process.machine.jump(fault.ms)
        return this.#targets.clockChanged(fault.process) as undefined
      case 'drift-process':
        process.machine.drift(fault.rate)
        return this.#targets.clockChanged(fault.process) as undefined
      case 'pause':
        process.pause(fault.ms, fault.steps)
        if (fault.steps === 0) this.#paused(process)
        else process.onStall = () => this.#paused(process)
        return undefined
      case 'crash-process':
        this.#targets.crashProcess(fault.process, fault.backMs)
        return undefined
      case 'close-process':
        this.#targets.closeProcess(fault)
        return undefined
    }
  }

  #paused(process: Process): void {
    const { network, record } = this.#targets
    record({ at: network.time.nowMs, kind: 'pause', process: process.name, untilMs: process.nowMs })
  }
}
