import { createLocks } from '../src/index.ts'
import { redis, redlock } from '../src/engines/redis/index.ts'
import { CONFIRM, EXTEND, HAND_OVER, INSPECT, RELEASE } from '../src/engines/redis/scripts.ts'
import { SimClient } from './client.ts'
import { MachineClock, Time } from './clock.ts'
import { History } from './history.ts'
import { Nemesis } from './nemesis.ts'
import { Network, type Request } from './network.ts'
import type { Plan } from './plan.ts'
import { Process } from './process.ts'
import { Seeded } from './random.ts'
import { Server } from './server.ts'
import { Store } from './store.ts'
import { Workload, type Counter } from './workload.ts'

const NAMES = new Map([CONFIRM, EXTEND, HAND_OVER, INSPECT, RELEASE].map(({ sha, name }) => [sha, name]))
const TEXTS = new Map([CONFIRM, EXTEND, HAND_OVER, INSPECT, RELEASE].map(({ text, name }) => [text, name]))

/** The whole of a run: machines, wires, processes, and the shipped library in each of them. */
export class World {
  readonly plan: Plan
  readonly time = new Time()
  readonly history = new History()
  readonly random: Seeded
  readonly network: Network
  readonly servers: readonly Server[]
  readonly store: Store
  readonly nemesis: Nemesis
  /** Those that run now, by number; a process that crashed is replaced. */
  readonly workloads: Workload[] = []
  readonly #all: { workload: Workload; clients: SimClient[] }[] = []
  readonly #calls: Counter = { next: 1 }
  #ids = 0

  constructor(plan: Plan) {
    this.plan = plan
    this.random = new Seeded(`run ${plan.seed}`)
    this.network = new Network(this.time, plan.latency)
    this.store = new Store(this.network, this.history)
    this.servers = plan.nodes.map((node, index) => {
      const clock = new MachineClock(this.time, { ...node, monotonicMs: 86_400_000 })
      const options = {
        persistence: node.persistence,
        ...(node.replicaLagMs === undefined ? {} : { replicaLagMs: node.replicaLagMs }),
      }
      return new Server(`n${index}`, this.time, clock, this.random.fork(`server ${index}`), options)
    })
    for (const server of this.servers) {
      server.executed = ({ process, isOpen }, request, reply) => {
        const { id, what, owner, former } = request
        const { name: node } = server
        const at = this.time.nowMs
        this.history.add({
          at,
          kind: 'exec',
          id,
          what,
          owner,
          former,
          process: process.name,
          node,
          late: !isOpen,
          reply,
        })
      }
    }
    this.nemesis = new Nemesis(
      {
        network: this.network,
        servers: this.servers,
        process: (index) => this.workloads[index]!.process,
        record: (event) => this.history.add(event),
        clockChanged: (index) => this.workloads[index]!.clockChanged(this.time.nowMs),
        crashProcess: (index, backMs) => this.#crashProcess(index, backMs),
      },
      plan.faults,
    )
    for (const index of plan.processes.keys()) this.workloads.push(this.#startProcess(index, 0))
  }

  get everyone(): readonly { workload: Workload; clients: SimClient[] }[] {
    return this.#all
  }

  #startProcess(index: number, life: number): Workload {
    const { plan, time } = this
    const { rate, aheadMs, driver, observes } = plan.processes[index]!
    const name = life === 0 ? `p${index}` : `p${index}.${life}`
    const random = this.random.fork(`process ${name}`)
    const process = new Process(name, time, new MachineClock(time, { rate, aheadMs }), random.fork('timers'))
    const clients = this.servers.map(
      (server) =>
        new SimClient({
          network: this.network,
          process,
          server,
          random: random.fork(server.name),
          driver,
          describe: (commands) => this.#describe(commands),
          sent: ({ id, what, owner, former }, node, again) =>
            this.history.add({ at: process.nowMs, kind: 'send', id, what, owner, former, process: name, node, again }),
          heard: ({ id, what, owner, former }, node) =>
            this.history.add({ at: time.nowMs, kind: 'heard', id, what, owner, former, process: name, node }),
          dropped: ({ id, what, owner, former }, node) =>
            this.history.add({ at: time.nowMs, kind: 'dropped', id, what, owner, former, process: name, node }),
        }),
    )
    const engine =
      plan.engine === 'redis'
        ? redis(clients[0], { clock: process, replicas: plan.replicas, within: 20 })
        : redlock(clients, { clock: process, maxTtl: plan.maxTtlMs, restart: plan.restart })
    // The history needs what the locks tell, but not of round trips.
    if (!observes) Object.defineProperty(engine, 'observe', { value: undefined })
    const locks = createLocks(engine, {
      ttl: plan.ttlMs,
      label: name,
      clock: process,
      random: random.fork('locks'),
      observe: (event) => workload.observe(event),
    })
    const workload = new Workload(process, locks, {
      history: this.history,
      store: this.store,
      random: random.fork('workload'),
      terms: plan,
      calls: this.#calls,
    })
    this.#all.push({ workload, clients })
    return workload
  }

  #crashProcess(index: number, backMs: number): void {
    const dead = this.workloads[index]!
    if (!dead.process.isAlive) return
    this.history.add({ at: this.time.nowMs, kind: 'crash', process: dead.process.name })
    dead.process.crash()
    const life = this.#all.filter(({ workload }) => workload.process.name.split('.')[0] === `p${index}`).length
    this.time.after(backMs, () => {
      const next = this.#startProcess(index, life)
      this.workloads[index] = next
      next.isStopping = dead.isStopping
      this.time.touch()
      next.start(this.plan.processes[index]!.tasks)
    })
  }

  /** A command in words: which step of the protocol it is, and whose. */
  #describe(commands: readonly (readonly string[])[]): Omit<Request, 'commands'> {
    const [name = '', first = '', keys = '0', ...rest] = commands[0]!
    const id = ++this.#ids
    if (name !== 'EVALSHA' && name !== 'EVAL')
      return { id, what: `${name} ${first}`.slice(0, 40), owner: '', former: '' }
    const args = rest.slice(Number(keys))
    const what = (name === 'EVALSHA' ? NAMES : TEXTS).get(first) ?? 'acquire'
    // A batch of extensions is many owners'; the one handed over to is who it is about.
    const owner = what === 'extend' ? args[3]! : what === 'handOver' ? args[1]! : what === 'inspect' ? '' : args[0]!
    return { id, what, owner, former: what === 'handOver' ? args[0]! : '' }
  }
}
