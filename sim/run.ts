import { check } from './checkers/all.ts'
import type { Wire } from './client.ts'
import { settled } from '../src/clock.ts'
import type { Lease } from '../src/lease.ts'
import type { Verdict } from './history.ts'
import type { Library } from './library.ts'
import { namesOf, POOL, type Plan } from './plan.ts'
import { World } from './world.ts'

export interface Outcome {
  readonly plan: Plan
  readonly world: World
  readonly verdicts: readonly Verdict[]
}

/** Nine rounds of an election, each with the time of a silent node (a tenth of 4 s); where there is one node, that node's time. */
const LATE_MS = { redlock: 5_000, redis: 1_500 }
/** Time for what is under way to come to an end after the healing: held commands, doubtful renewals, reconnects. */
const SETTLE_MS = 500

/** Runs a plan: the workload among faults, then everything heals, everyone gets a last turn, and all is closed. */
export async function run(plan: Plan, wire?: Wire, older?: Library): Promise<Outcome> {
  // A run is one long chain of microtasks: here the event loop has its turn.
  await settled()
  const world = new World(plan, wire, older)
  const { time, history, workloads } = world
  history.add({ at: 0, kind: 'setup', ...setupOf(plan) })
  for (const [index, workload] of workloads.entries()) workload.start(plan.processes[index]!.tasks)
  await time.run(plan.busyMs)

  world.nemesis.healAll()
  history.add({ at: time.nowMs, kind: 'healed' })
  if (plan.leaveFrozen !== undefined) world.servers[plan.leaveFrozen]!.isFrozen = true
  for (const workload of workloads) {
    workload.isStopping = true
    workload.process.disarm()
  }
  // Leases that a dead process or a node's odd clock keeps, and the sitting out of nodes, are over by then.
  const patienceMs =
    SETTLE_MS +
    2 * plan.maxTtlMs +
    (plan.engine === 'redlock' ? sitOutMs(plan) : 0) +
    setBackMs(plan) +
    longestPauseMs(plan)
  const isQuiet = (): boolean =>
    world.workloads.every(({ running, process }) => running === 0 && process.isAlive && process.nowMs <= time.nowMs)
  await time.run(time.nowMs + 4000 + patienceMs, isQuiet)
  await time.run(time.nowMs + SETTLE_MS)

  let isDone = false
  const pools = (plan.kinds?.permits ?? 0) > 0 ? [POOL] : []
  const turns = [...world.workloads, ...world.workloads].flatMap((workload) =>
    [...plan.resources, ...pools].map((resource) => ({ workload, resource })),
  )
  void (async () => {
    for (const [index, { workload, resource }] of turns.entries()) {
      const turn = index < turns.length / 2 ? 'first' : 'second'
      if (index === turns.length / 2) {
        // A node that was let in during the first turns may grant what was asked for then, which is given back. And that a flush has
        // taken a node's stamp is noticed by the first new process that asks it: only then it begins to sit out.
        const isFlushed = plan.faults.some(({ kind }) => kind === 'flushall')
        await new Promise<void>((resolve) =>
          time.after(isFlushed ? sitOutMs(plan) : SETTLE_MS, () => {
            time.touch()
            resolve()
          }),
        )
      }
      const acquire = (): Promise<Lease> =>
        resource === POOL
          ? workload.kinds!.pool.acquire({ wait: patienceMs })
          : workload.locks.acquire(resource, { wait: patienceMs })
      const lease = await workload.call([resource], patienceMs, acquire, { turn })
      if (lease !== undefined) await workload.release(lease)
    }
    isDone = true
  })()
  await time.run(time.nowMs + patienceMs * turns.length + sitOutMs(plan) + 1000, () => isDone)

  for (const { workload } of world.everyone) void workload.locks.close()
  // Deadlines of the last commands, subscriptions that were just being made.
  await time.run(time.nowMs + 5000)
  for (const { workload, clients } of world.everyone) {
    if (!workload.process.isAlive) continue
    const { process, running } = workload
    const subscriptions = clients.reduce((sum, client) => sum + client.subscriptions, 0)
    history.add({
      at: time.nowMs,
      kind: 'closed',
      process: process.name,
      timers: process.timers,
      subscriptions,
      pending: running,
    })
  }
  // A broken connection may have delivered a command after the release; what that was granted ends by itself.
  await time.run(time.nowMs + plan.maxTtlMs)
  for (const server of world.servers) {
    for (const { key, value, leftMs } of server.remains())
      history.add({ at: time.nowMs, kind: 'left', node: server.name, key, value, leftMs })
  }
  return { plan, world, verdicts: check(history) }
}

function sitOutMs({ restart, maxTtlMs }: Plan): number {
  // As the engine has it, and a second for the whole ones in which nodes count their uptime.
  return restart === 'trust' ? 0 : Math.max(maxTtlMs, 5000) + 2000
}

/** A node whose clock is set back keeps its leases and sits out for longer. */
function setBackMs({ faults }: Plan): number {
  return faults.reduce((sum, fault) => (fault.kind === 'jump' ? sum + Math.abs(fault.ms) : sum), 0)
}

function longestPauseMs({ faults }: Plan): number {
  return faults.reduce((sum, fault) => (fault.kind === 'pause' ? sum + fault.ms : sum), 0)
}

/** In what the clients of a quorum must have alike. */
function unlike({ processes }: Plan): string {
  const index = processes.findIndex(({ nodes, maxTtlMs }) => nodes !== undefined || maxTtlMs !== undefined)
  if (index < 0) return ''
  return `p${index} had another ${processes[index]!.nodes === undefined ? 'maxTtl' : 'list of nodes'} than the others`
}

export function setupOf(
  plan: Plan,
): Omit<Extract<World['history']['events'][number], { kind: 'setup' }>, 'at' | 'kind'> {
  const ahead = plan.nodes.map(({ aheadMs }) => aheadMs)
  const rates = [...plan.nodes, ...plan.processes].map(({ rate }) => rate)
  return {
    engine: plan.engine,
    nodes: plan.nodes.length,
    resources: namesOf(plan),
    permits: plan.kinds?.permits ?? 0,
    ttlMs: plan.ttlMs,
    maxTtlMs: plan.maxTtlMs,
    drift: 0.01,
    sitOutMs: sitOutMs(plan),
    faultless: plan.faults.length === 0 && plan.leaveFrozen === undefined,
    lateMs: LATE_MS[plan.engine],
    nodesApartMs: Math.max(...ahead) - Math.min(...ahead),
    drifting: Math.max(...rates) / Math.min(...rates) > 1 / 0.99,
    quickMs: 20 + 8 * (plan.latency.baseMs + 3 * plan.latency.jitterMs),
    leftFrozen: plan.leaveFrozen !== undefined,
    restart: plan.restart,
    unlike: unlike(plan),
  }
}
