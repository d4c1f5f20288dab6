import { sleep } from '../../src/clock.ts'
import type { Lease } from '../../src/lease.ts'
import type { RedisClient } from '../../src/engines/redis/client.ts'
import type { History } from '../history.ts'
import type { Fault } from '../nemesis.ts'
import type { Plan } from '../plan.ts'
import type { Process } from '../process.ts'
import type { StoreKind } from '../store.ts'
import { World } from '../world.ts'
import { setupOf } from '../run.ts'

/** A plan in which nothing goes wrong by itself: clocks are exact and every message takes a millisecond. */
export function quiet(
  options: { nodes?: number; processes?: number } & Partial<Omit<Plan, 'nodes' | 'processes'>> = {},
): Plan {
  const { nodes = 3, processes = 2, ...rest } = options
  return {
    seed: 'scenario',
    engine: nodes === 1 ? 'redis' : 'redlock',
    // A replica is there, for those who fail over to it.
    nodes: Array.from({ length: nodes }, () => ({ rate: 1, aheadMs: 0, persistence: 'none', replicaLagMs: 100 })),
    processes: Array.from({ length: processes }, () => ({
      rate: 1,
      aheadMs: 0,
      driver: 'resend',
      observes: true,
      tasks: 0,
    })),
    resources: ['a'],
    ttlMs: 1000,
    maxTtlMs: 2000,
    restart: nodes === 1 ? 'trust' : 'auto',
    replicas: 0,
    latency: { baseMs: 1, jitterMs: 0 },
    busyMs: 0,
    leaveFrozen: undefined,
    faults: [],
    ...rest,
  }
}

/** A world whose actors follow a script. */
export class Stage {
  readonly world: World
  /** When somebody got what they wanted, by their own account. */
  readonly done = new Map<string, number>()

  constructor(plan: Plan, faults: readonly Fault[] = []) {
    // On machines that this play does not have, nothing happens.
    this.world = new World({ ...plan, faults: faults.filter((fault) => has(plan, fault)) })
    this.history.add({ at: 0, kind: 'setup', ...setupOf(plan) })
  }

  get history(): History {
    return this.world.history
  }

  get nowMs(): number {
    return this.world.time.nowMs
  }

  process(index: number): Process {
    return this.world.workloads[index]!.process
  }

  client(process: number, node: number): RedisClient {
    return this.world.everyone[process]!.clients[node]!.redis
  }

  /** Something happens at that time. */
  at(ms: number, happens: () => void): void {
    this.world.time.at(ms, () => {
      this.world.time.touch()
      happens()
    })
  }

  /** A process begins something at that time. */
  start(ms: number, process: number, act: () => Promise<void>): void {
    this.at(ms, () => this.process(process).enter(() => void act()))
  }

  note(process: number, text: string): void {
    this.history.add({ at: this.process(process).nowMs, kind: 'note', process: `p${process}`, text })
  }

  sleep(process: number, ms: number): Promise<void> {
    return sleep(this.process(process), ms)
  }

  /** Takes the lease as users of the library do. */
  async acquire(
    process: number,
    options: { waitMs?: number; ttlMs?: number; renew?: boolean } = {},
  ): Promise<Lease | undefined> {
    const { waitMs = 0, ttlMs = this.world.plan.ttlMs, renew = true } = options
    const workload = this.world.workloads[process]!
    const lease = await workload.call(['a'], waitMs, () =>
      workload.locks.acquire('a', { wait: waitMs, ttl: ttlMs, renew }),
    )
    if (lease !== undefined) this.done.set(`p${process}`, this.nowMs)
    return lease
  }

  release(process: number, lease: Lease): Promise<void> {
    return this.world.workloads[process]!.release(lease)
  }

  /** Adds one to the counter: reads, works for a while, looks whether the lease is held, and writes. */
  async count(
    process: number,
    lease: Pick<Lease, 'owner' | 'token' | 'held'>,
    store: StoreKind,
    workMs: number,
    beforeWrite: () => void = () => undefined,
  ): Promise<void> {
    const writer = { owner: lease.owner, token: Number(lease.token) }
    const random = this.world.random.fork(`count ${process}`)
    const value = await this.world.store.read(this.process(process), random, store, 'a', writer)
    await this.sleep(process, workMs)
    if (value === undefined || !lease.held) return
    beforeWrite()
    await this.world.store.write(this.process(process), random, store, 'a', writer, value + 1)
  }

  /** A lock as it is often written by hand: what somebody believes to hold, from now on until `end` is called. */
  believes(process: number, untilMs = Infinity): { end: () => void } {
    const owner = `by hand ${this.history.events.length}`
    const name = `p${process}`
    this.history.add({
      at: this.process(process).nowMs,
      kind: 'holds',
      process: name,
      call: 0,
      owner,
      token: 0,
      resources: ['a'],
      untilMs,
    })
    this.done.set(name, this.nowMs)
    return {
      end: () =>
        this.history.add({
          at: this.process(process).nowMs,
          kind: 'ends',
          process: name,
          owner,
          token: 0,
          why: 'let go',
        }),
    }
  }

  async play(forMs: number): Promise<void> {
    await this.world.time.run(forMs)
    const { events } = this.history
    const count = events.length
    for (const { workload } of this.world.everyone) void workload.locks.close()
    await this.world.time.run(forMs + 3000)
    // The end of the play is no part of it.
    events.length = count
  }
}

function has({ nodes, processes }: Plan, fault: Fault): boolean {
  return !('node' in fault && fault.node >= nodes.length) && !('process' in fault && fault.process >= processes.length)
}

/** By hand: SET NX on one node or several; true where a majority of them said OK. */
export async function setByHand(
  stage: Stage,
  process: number,
  nodes: readonly number[],
  owner: string,
  ttlMs?: number,
): Promise<boolean> {
  const expiry = ttlMs === undefined ? [] : ['PX', String(ttlMs)]
  const asked = nodes.map((node) => stage.client(process, node).run(['SET', 'a', owner, 'NX', ...expiry]))
  const answers = await Promise.all(asked.map((answer) => answer.catch(() => null)))
  return answers.filter((answer) => answer === 'OK').length * 2 > nodes.length
}

export function cut(
  stage: Stage,
  process: number,
  nodes: readonly number[],
  way: 'both' | 'to' | 'from' = 'both',
): () => void {
  const links = nodes.map((node) => stage.world.network.link(`p${process}`, `n${node}`))
  for (const link of links) {
    if (way !== 'from') link.cutTo++
    if (way !== 'to') link.cutFrom++
  }
  return () => {
    for (const link of links) {
      if (way !== 'from') link.cutTo--
      if (way !== 'to') link.cutFrom--
      link.heal(false)
    }
  }
}

export function delay(stage: Stage, process: number, place: string, ms: number): void {
  stage.world.network.link(`p${process}`, place).delayMs += ms
}
