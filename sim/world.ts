import { resourceKeys, STAMP_KEY } from '../src/engines/redis/keys.ts'
import { SHARED } from '../src/engines/redis/readers-lua.ts'
import { SimClient, type Wire, type Wired } from './client.ts'
import { MachineClock, Time } from './clock.ts'
import { EffectStore } from './effects.ts'
import { History } from './history.ts'
import type { Tickets } from './kinds.ts'
import { CURRENT, type Library } from './library.ts'
import { Nemesis, type Fault } from './nemesis.ts'
import { Network } from './network.ts'
import { ObjectStorage } from './objects.ts'
import type { Plan } from './plan.ts'
import { Process } from './process.ts'
import { Seeded } from './random.ts'
import { runLog } from './run-log.ts'
import { Server } from './server.ts'
import { SortedSet } from './sorted-set.ts'
import { inWords, partOf, ScriptNames } from './steps-in-words.ts'
import { Store } from './store.ts'
import { Workload, type Counter } from './workload.ts'

/** The script did not run. */
const UNDONE = /^(NOSCRIPT|NOPERM No permissions to access a key)/

const VOTES = new Set(['acquire', 'confirm', 'handOver'])

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
  readonly #all: { workload: Workload; clients: readonly Wired[] }[] = []
  readonly #calls: Counter = { next: 1 }
  readonly #tickets: Tickets = []
  readonly #effects: EffectStore
  readonly #objects: ObjectStorage | undefined
  readonly #wire: Wire
  readonly #older: { readonly library: Library; readonly names: ScriptNames } | undefined
  #ids = 0
  #isBlank = false

  /** `older`: what the processes have that are of an older version. */
  constructor(plan: Plan, wire: Wire = (wiring) => new SimClient(wiring), older?: Library) {
    this.plan = plan
    this.#wire = wire
    this.#older = older && { library: older, names: new ScriptNames(older) }
    this.random = new Seeded(`run ${plan.seed}`)
    this.network = new Network(this.time, plan.latency)
    this.store = new Store(this.network, this.history)
    this.#effects = new EffectStore(this.network, this.history, this.random.fork('effects'))
    this.#objects = plan.objects && new ObjectStorage(this.network, this.history, plan.objects)
    this.servers = plan.nodes.map((node, index) => {
      const clock = new MachineClock(this.time, { ...node, monotonicMs: 86_400_000 })
      const options = {
        persistence: node.persistence,
        ...(node.replicaLagMs === undefined ? {} : { replicaLagMs: node.replicaLagMs }),
      }
      return new Server(`n${index}`, this.time, clock, this.random.fork(`server ${index}`), options)
    })
    for (const server of this.servers) {
      let had = 0
      server.executing = ({ steps: [{ what, owner } = NO_STEP] }) =>
        void (had = what === 'extend' ? locksOf(owner, server, plan.resources) : 0)
      server.executed = ({ process, isOpen }, { steps }, replies) => {
        const { name: node } = server
        const at = this.time.nowMs
        for (const [index, step] of steps.entries()) {
          const { what, owner } = step
          const reply = steps.length === 1 ? replies : [partOf(replies[0], index), ...replies.slice(1)]
          const isDone = what === 'release' && !(reply[0] instanceof Error && UNDONE.test(reply[0].message))
          // The same call may put a lost key back.
          const isAgain = steps.slice(index + 1).some((later) => later.what === 'acquire' && later.owner === owner)
          const kept = isDone && !isAgain ? locksOf(owner, server, plan.resources) : 0
          this.history.add({
            at,
            kind: 'exec',
            ...step,
            process: process.name,
            node,
            late: !isOpen,
            reply,
            kept,
            ...(what === 'extend' && had === 0 && locksOf(owner, server, plan.resources) > 0 ? { remade: true } : {}),
          })
        }
        if (this.#isBlank) this.#lookForTraces()
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
        closeProcess: (fault) => this.#closeProcess(fault),
        returned: () => this.#lookForTraces(),
      },
      plan.faults,
    )
    for (const index of plan.processes.keys()) this.workloads.push(this.#startProcess(index, 0))
  }

  get everyone(): readonly { workload: Workload; clients: readonly Wired[] }[] {
    return this.#all
  }

  #startProcess(index: number, life: number): Workload {
    const { plan, time } = this
    const {
      rate,
      aheadMs,
      driver,
      observes,
      pool,
      nodes,
      permits,
      maxTtlMs = plan.maxTtlMs,
      callsAll = false,
      lingers = false,
      isOlder = false,
    } = plan.processes[index]!
    const { library, names } = isOlder ? this.#older! : { library: CURRENT, names: undefined }
    const ttlMs = Math.min(plan.ttlMs, maxTtlMs)
    const name = life === 0 ? `p${index}` : `p${index}.${life}`
    this.history.add({ at: time.nowMs, kind: 'start', process: name, ...(isOlder ? { isOlder } : {}) })
    const random = this.random.fork(`process ${name}`)
    const process = new Process(name, time, new MachineClock(time, { rate, aheadMs }), random.fork('timers'))
    const clients = this.servers.map((server) =>
      this.#wire({
        network: this.network,
        process,
        server,
        random: random.fork(server.name),
        driver,
        ...(pool === undefined ? {} : { pool }),
        describe: (commands) => ({ steps: inWords(commands, () => ++this.#ids, names) }),
        sent: ({ steps }, node, again) => {
          const at = process.nowMs
          for (const step of steps) this.history.add({ at, kind: 'send', ...step, process: name, node, again })
        },
        heard: ({ steps }, node) => {
          const at = time.nowMs
          for (const step of steps) this.history.add({ at, kind: 'heard', ...step, process: name, node })
          if (steps.some(({ what }) => VOTES.has(what))) process.hears()
        },
        dropped: ({ steps }, node) => {
          const at = time.nowMs
          for (const step of steps) this.history.add({ at, kind: 'dropped', ...step, process: name, node })
        },
        issued: ({ steps }, node) => {
          const at = time.nowMs
          for (const step of steps) this.history.add({ at, kind: 'issued', ...step, process: name, node })
        },
      }),
    )
    // An older version drew none for a single node.
    const own = { clock: process, random: random.fork('epochs') }
    const engine =
      plan.engine === 'redis'
        ? library.redis(clients[0]!.redis, {
            ...(isOlder ? { clock: process } : own),
            replicas: plan.replicas,
            within: 20,
          })
        : library.redlock(
            (nodes?.map((node) => clients[node]!) ?? clients).map((client) => client.redis),
            { ...own, maxTtl: maxTtlMs, restart: plan.restart },
          )
    // The history needs what the locks tell, but not of round trips.
    if (!observes) Object.defineProperty(engine, 'observe', { value: undefined })
    const extend = engine.extend.bind(engine)
    engine.extend = (leases) => {
      // An extension to a shorter time shortens the lease as soon as it is sent.
      queueMicrotask(() => workload.shortened())
      return extend(leases)
    }
    const locks = library.createLocks(engine, {
      ttl: ttlMs,
      label: name,
      clock: process,
      random: random.fork('locks'),
      observe: (event) => workload.observe(event),
    })
    const workload = new Workload(process, locks, {
      history: this.history,
      store: this.store,
      random: random.fork('workload'),
      ...(plan.kinds === undefined
        ? {}
        : {
            kinds: {
              plan: plan.kinds,
              permits: permits ?? plan.kinds.permits,
              tickets: this.#tickets,
              guard: this.#effects.guard(process, random.fork('effects'), driver),
            },
          }),
      ...(this.#objects === undefined ? {} : { objects: this.#objects }),
      ...(plan.looks === true
        ? { looks: { runs: runLog(this.network, this.history, process, random.fork('runs')) } }
        : {}),
      terms: { resources: plan.resources, ttlMs, maxTtlMs, callsAll, lingers, readers: plan.readers ?? 0 },
      calls: this.#calls,
      lastId: () => this.#ids,
    })
    this.#all.push({ workload, clients })
    return workload
  }

  #crashProcess(index: number, backMs: number): void {
    const dead = this.workloads[index]!
    if (!dead.process.isAlive || dead.isClosed) return
    this.history.add({ at: this.time.nowMs, kind: 'crash', process: dead.process.name })
    dead.process.crash()
    this.#startAgain(index, backMs)
  }

  /** The locks are closed in the middle of what their process does; another process takes up the work. */
  #closeProcess({ process: index, steps, since, backMs }: Extract<Fault, { kind: 'close-process' }>): void {
    const old = this.workloads[index]!
    if (!old.process.isAlive || old.isClosed) return
    const close = (): void => {
      if (!old.process.isAlive || old.isClosed) return
      old.close()
      this.#startAgain(index, backMs)
    }
    old.process.meanwhile(steps, close, since)
  }

  #startAgain(index: number, backMs: number): void {
    const life = this.#all.filter(({ workload }) => workload.process.name.split('.')[0] === `p${index}`).length
    this.time.after(backMs, () => {
      const next = this.#startProcess(index, life)
      this.workloads[index] = next
      next.isStopping = this.nemesis.isOver
      this.time.touch()
      next.start(this.plan.processes[index]!.tasks)
    })
  }

  /** Does any node know that it has been in use? Looked at when one has come back, and until one does. */
  #lookForTraces(): void {
    const isBlank = this.servers.every(({ redis }) => !isTraced(redis.get(STAMP_KEY)?.value))
    if (isBlank === this.#isBlank) return
    this.#isBlank = isBlank
    this.history.add({ at: this.time.nowMs, kind: isBlank ? 'blank' : 'stamped' })
  }
}

const NO_STEP = { what: '', owner: '' }

function locksOf(owner: string, server: Server, resources: readonly string[]): number {
  let count = 0
  for (const { value } of server.redis.keys.values()) if (value === owner) count++
  for (const resource of resources) if (isReader(owner, server, resource)) count++
  return count
}

/** A reader is one until its time is over, also if nobody has taken it out since. */
function isReader(owner: string, { redis, clock }: Server, resource: string): boolean {
  const { lock, readers } = resourceKeys('', resource)
  const holder = redis.keys.get(lock)?.value
  const all = redis.keys.get(readers)?.value
  if (typeof holder !== 'string' || !holder.startsWith(SHARED) || !(all instanceof SortedSet)) return false
  return Number(all.score(SHARED + owner) ?? 0) >= Math.floor(clock.wallMs())
}

/** Was it let in at some time, or seen to sit out beside nodes that were? */
function isTraced(stamp: unknown): boolean {
  if (!(stamp instanceof Map)) return false
  const fields = stamp as ReadonlyMap<string, string>
  return Number(fields.get('since.level') ?? 0) > 0 || [...fields.keys()].some((name) => name.startsWith('epoch:'))
}
