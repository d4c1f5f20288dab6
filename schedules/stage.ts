import type { Engine } from '../src/engine.ts'
import { createLocks } from '../src/index.ts'
import { MachineClock, Time } from '../sim/clock.ts'
import { EffectStore } from '../sim/effects.ts'
import { History } from '../sim/history.ts'
import type { Tickets } from '../sim/kinds.ts'
import { Nemesis, type Fault } from '../sim/nemesis.ts'
import { Network } from '../sim/network.ts'
import { Process } from '../sim/process.ts'
import { Seeded } from '../sim/random.ts'
import { Store } from '../sim/store.ts'
import { Workload, type Counter } from '../sim/workload.ts'
import { Courier, Door } from './courier.ts'
import type { Plan } from './plan.ts'
import type { Target } from './target.ts'

/** The clients of a schedule: each a process with a clock of its own, the shipped library, and a courier to the real server. */
export class Stage {
  readonly plan: Plan
  readonly time = new Time()
  readonly history = new History()
  readonly random: Seeded
  /** Those that run now, by number; a process that crashed or was closed is replaced. */
  readonly workloads: Workload[] = []
  readonly everyone: Workload[] = []
  readonly nemesis: Nemesis
  readonly server: MachineClock
  readonly #target: Target
  readonly #wallMs: number
  readonly #wrong: string | undefined
  readonly #door: Door
  readonly #store: Store
  readonly #effects: EffectStore
  readonly #tickets: Tickets = []
  readonly #couriers: Courier[] = []
  readonly #calls: Counter = { next: 1 }
  #ids = 0

  constructor(plan: Plan, target: Target, { wallMs, wrong }: { wallMs: number; wrong: string | undefined }) {
    this.plan = plan
    this.random = new Seeded(`run ${plan.seed}`)
    this.#target = target
    this.#wallMs = wallMs
    this.#wrong = wrong
    const machine = new MachineClock(this.time)
    this.server = new MachineClock(this.time, { rate: plan.serverRate, aheadMs: wallMs - machine.wallMs() })
    this.#door = new Door(this.time, plan.togetherMs, () => target.clock(this.server.wallMs()))
    const network = new Network(this.time, plan.latency)
    this.#store = new Store(network, this.history)
    this.#effects = new EffectStore(network, this.history, this.random.fork('store'))
    this.nemesis = new Nemesis(
      {
        network,
        servers: [],
        process: (index) => this.workloads[index]!.process,
        record: (event) => this.history.add(event),
        clockChanged: (index) => this.workloads[index]!.clockChanged(this.time.nowMs),
        crashProcess: (index, backMs) => this.#crash(index, backMs),
        closeProcess: (fault) => this.#close(fault),
        returned: () => undefined,
      },
      plan.faults,
    )
    for (const index of plan.processes.keys()) this.workloads.push(this.#start(index, 0))
  }

  heal(): void {
    this.nemesis.healAll()
    for (const courier of this.#couriers) courier.isHealed = true
  }

  #start(index: number, life: number): Workload {
    const { plan, time, history } = this
    const { rate, aheadMs, callsAll, lingers, driver } = plan.processes[index]!
    const name = life === 0 ? `p${index}` : `p${index}.${life}`
    history.add({ at: time.nowMs, kind: 'start', process: name })
    const random = this.random.fork(`process ${name}`)
    const ahead = aheadMs + this.#wallMs - new MachineClock(time).wallMs(0)
    const process = new Process(name, time, new MachineClock(time, { rate, aheadMs: ahead }), random.fork('timers'))
    const nextId = (): number => ++this.#ids
    const parts = { time, history, process, door: this.#door, plan, wrong: this.#wrong, nextId }
    const courier = new Courier({ ...parts, random: random.fork('courier') })
    courier.isHealed = this.nemesis.isOver
    this.#couriers.push(courier)
    const { maxTtlMs } = plan
    const seam = { process, courier, random: random.fork('engine'), driver, maxTtlMs, wrong: this.#wrong }
    const engine = this.#target.open(seam)
    const extend = engine.extend.bind(engine)
    engine.extend = (leases) => {
      // An extension to a shorter time shortens the lease as soon as it is sent.
      queueMicrotask(() => workload.shortened())
      return extend(leases)
    }
    if (this.#target.looksFirst === true) this.#tellReleases(engine, name)
    const { ttlMs, readers, kinds } = plan
    const locks = createLocks(engine, {
      ttl: ttlMs,
      label: name,
      clock: process,
      random: random.fork('locks'),
      observe: (event) => workload.observe(event),
    })
    const { leastTtlMs } = this.#target
    const workload = new Workload(process, locks, {
      history,
      store: this.#store,
      random: random.fork('workload'),
      terms: {
        resources: plan.resources,
        ttlMs,
        maxTtlMs,
        readers,
        callsAll,
        lingers,
        ...(leastTtlMs === undefined ? {} : { leastTtlMs }),
      },
      ...(kinds === undefined
        ? {}
        : {
            kinds: {
              plan: kinds,
              permits: kinds.permits,
              tickets: this.#tickets,
              guard: this.#effects.guard(process, random.fork('effects'), 'reject'),
            },
          }),
      calls: this.#calls,
      lastId: () => this.#ids,
    })
    this.everyone.push(workload)
    return workload
  }

  #tellReleases(engine: Engine, process: string): void {
    const release = engine.release.bind(engine)
    engine.release = (lease) => {
      const step = { id: ++this.#ids, process, node: 'server', what: 'release', owner: lease.owner, former: '' }
      this.history.add({ at: this.time.nowMs, kind: 'issued', ...step })
      return release(lease)
    }
  }

  #crash(index: number, backMs: number): void {
    const dead = this.workloads[index]!
    if (!dead.process.isAlive || dead.isClosed) return
    this.history.add({ at: this.time.nowMs, kind: 'crash', process: dead.process.name })
    dead.process.crash()
    this.#startAgain(index, backMs)
  }

  #close({ process: index, steps, since, backMs }: Extract<Fault, { kind: 'close-process' }>): void {
    const old = this.workloads[index]!
    const close = (): void => {
      if (!old.process.isAlive || old.isClosed) return
      old.close()
      this.#startAgain(index, backMs)
    }
    old.process.meanwhile(steps, close, since)
  }

  #startAgain(index: number, backMs: number): void {
    const life = this.everyone.filter(({ process }) => process.name.split('.')[0] === `p${index}`).length
    this.time.after(backMs, () => {
      const next = this.#start(index, life)
      this.workloads[index] = next
      next.isStopping = this.nemesis.isOver
      this.time.touch()
      next.start(this.plan.processes[index]!.tasks)
    })
  }
}
