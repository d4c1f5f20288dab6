import { settled } from '../src/clock.ts'
import { systemRandom, type Random } from '../src/random.ts'
import { check } from '../sim/checkers/all.ts'
import type { HistoryEvent, Verdict } from '../sim/history.ts'
import { namesOf, POOL } from '../sim/plan.ts'
import { Seeded } from '../sim/random.ts'
import { isCalm, type Plan } from './plan.ts'
import { Stage } from './stage.ts'
import type { Target } from './target.ts'

export interface Outcome {
  readonly plan: Plan
  readonly stage: Stage
  readonly verdicts: readonly Verdict[]
}

/** Time for what is under way to come to an end after the healing. */
const SETTLE_MS = 500

/** Plays a schedule on a real server: the clients work, everything heals, everyone gets two last turns, and all is closed. */
export async function run(plan: Plan, target: Target, wrong?: string): Promise<Outcome> {
  const usual = { ...systemRandom }
  const drawn = new Seeded(`system ${plan.seed}`)
  // Engines that are not handed random numbers draw from here.
  Object.assign(systemRandom, { id: () => drawn.id(), fraction: () => drawn.fraction() } satisfies Random)
  try {
    return await play(plan, target, wrong)
  } finally {
    Object.assign(systemRandom, usual)
  }
}

async function play(plan: Plan, target: Target, wrong: string | undefined): Promise<Outcome> {
  const wallMs = await target.begin()
  await settled()
  const stage = new Stage(plan, target, { wallMs, wrong })
  const { time, history } = stage
  history.add({ at: 0, kind: 'setup', ...setupOf(plan, target) })
  target.disturb?.(time, plan)
  for (const [index, workload] of stage.workloads.entries()) workload.start(plan.processes[index]!.tasks)
  await time.run(plan.busyMs)

  stage.heal()
  history.add({ at: time.nowMs, kind: 'healed' })
  for (const workload of stage.workloads) {
    workload.isStopping = true
    workload.process.disarm()
  }
  // What was held back before still arrives, and leases that a dead process keeps are over by then.
  const patienceMs = SETTLE_MS + 6 * plan.ttlMs + target.lateMs
  const isQuiet = (): boolean =>
    stage.workloads.every(({ running, process }) => running === 0 && process.isAlive && process.nowMs <= time.nowMs)
  await time.run(time.nowMs + 4000 + patienceMs, isQuiet)
  await time.run(time.nowMs + SETTLE_MS + 4 * plan.ttlMs)
  await lastTurns(stage, patienceMs)

  for (const { locks } of stage.everyone) void locks.close()
  // Deadlines of the last requests.
  await time.run(time.nowMs + 5000)
  for (const { process, running } of stage.everyone) {
    if (!process.isAlive) continue
    const { timers, name } = process
    history.add({ at: time.nowMs, kind: 'closed', process: name, timers, subscriptions: 0, pending: running })
  }
  // What was left by a lost release, or by a job of `once`, ends by itself.
  const mayRest = !isCalm(plan) || plan.processes.some(({ callsAll }) => callsAll)
  if (mayRest) await time.run(time.nowMs + plan.maxTtlMs)
  await target.clock(stage.server.wallMs())
  for (const { resource, owner, leftMs } of await target.left(stage.server.monotonicMs(), namesOf(plan)))
    history.add({ at: time.nowMs, kind: 'left', node: 'server', key: resource, value: owner, leftMs })
  return { plan, stage, verdicts: check(history) }
}

async function lastTurns({ plan, workloads, time }: Stage, patienceMs: number): Promise<void> {
  let isDone = false
  const pools = (plan.kinds?.permits ?? 0) > 0 ? [POOL] : []
  const turns = (['first', 'second'] as const).flatMap((turn) =>
    workloads.flatMap((workload) => [...plan.resources, ...pools].map((resource) => ({ turn, workload, resource }))),
  )
  void (async () => {
    for (const { turn, workload, resource } of turns) {
      const acquire = (): ReturnType<typeof workload.locks.acquire> =>
        resource === POOL
          ? workload.kinds!.pool.acquire({ wait: patienceMs })
          : workload.locks.acquire(resource, { wait: patienceMs })
      const lease = await workload.call([resource], patienceMs, acquire, { turn })
      if (lease !== undefined) await workload.release(lease)
    }
    isDone = true
  })()
  await time.run(time.nowMs + patienceMs * turns.length + 1000, () => isDone)
}

function setupOf(plan: Plan, target: Target): Omit<Extract<HistoryEvent, { kind: 'setup' }>, 'at' | 'kind'> {
  const rates = [plan.serverRate, ...plan.processes.map(({ rate }) => rate)]
  const { baseMs, jitterMs } = plan.latency
  return {
    engine: target.name,
    nodes: 1,
    resources: namesOf(plan),
    permits: plan.kinds?.permits ?? 0,
    ttlMs: plan.ttlMs,
    maxTtlMs: plan.maxTtlMs,
    drift: 0.01,
    sitOutMs: 0,
    faultless: false,
    quickMs: 20 + 12 * (baseMs + jitterMs + plan.togetherMs),
    lateMs: target.lateMs,
    nodesApartMs: 0,
    drifting: Math.max(...rates) / Math.min(...rates) > 1 / 0.99,
    leftFrozen: false,
    restart: 'trust',
    unlike: '',
  }
}
