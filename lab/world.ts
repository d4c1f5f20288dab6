import { Seeded } from '../sim/random.ts'
import type { Fault } from '../sim/nemesis.ts'
import { delay, quiet, Stage } from '../sim/scenarios/stage.ts'
import type { Plan } from '../sim/plan.ts'
import { lockByHand, type OwnLock } from './by-hand.ts'

/** What can be left out. `protocol`: a lock that is written by hand, in place of the shipped one. */
export const SWITCHES = ['protocol', 'check-and-delete', 'quorum', 'sit-out', 'renewal', 'tokens', 'guard'] as const
export type Switch = (typeof SWITCHES)[number]

/** A client takes the lock at that time, works under it, and gives it back. */
export interface Turn {
  readonly client: number
  readonly atMs: number
  readonly workMs: number
}

export interface Setting {
  readonly clients: number
  readonly nodes: number
  readonly ttlMs?: number
  /** Those who take turns, until the end, if no turns are named. */
  readonly turns?: readonly Turn[]
  /** Each client is nearer to one node than to the others. */
  readonly zones?: true
  readonly endMs: number
}

const WORK_MS = 300

/** Clients that count in a store, each under a lock that does all it can but for what is switched off. */
export async function playWorld(
  setting: Setting,
  seed: number,
  off: ReadonlySet<Switch>,
  faults: readonly Fault[],
): Promise<Stage> {
  const stage = new Stage(planOf(setting, seed, off), faults)
  const { clients, endMs, turns, zones } = setting
  if (zones === true) {
    for (let client = 0; client < clients; client++)
      for (let node = 0; node < setting.nodes; node++) if (node !== client) delay(stage, client, `n${node}`, 3)
  }
  for (const { client, atMs, workMs } of turns ?? [])
    stage.start(atMs, client, () => turn(stage, off, client, workMs, endMs))
  const random = new Seeded(`work of ${seed}`)
  for (let client = 0; client < (turns === undefined ? clients : 0); client++) {
    stage.start(20 * client, client, async () => {
      while (stage.nowMs < endMs) {
        await turn(stage, off, client, seed === 0 ? WORK_MS : random.int(WORK_MS / 3, 2 * WORK_MS), endMs)
        await stage.sleep(client, 100)
      }
    })
  }
  await stage.play(endMs)
  return stage
}

function planOf({ clients, nodes, ttlMs = 1000 }: Setting, seed: number, off: ReadonlySet<Switch>): Plan {
  const random = new Seeded(`machines of ${seed}`)
  const plan = quiet({
    processes: clients,
    nodes,
    seed: `lab ${seed}`,
    ttlMs,
    maxTtlMs: Math.max(ttlMs, 2000),
    engine: nodes > 1 && !off.has('quorum') ? 'redlock' : 'redis',
    restart: nodes > 1 && !off.has('quorum') && !off.has('sit-out') ? 'auto' : 'trust',
    latency: { baseMs: 1, jitterMs: seed === 0 ? 0 : 2 },
  })
  const unlike = <M extends { aheadMs: number }>(machine: M): M =>
    seed === 0 ? machine : { ...machine, aheadMs: random.between(-200, 200) }
  return {
    ...plan,
    processes: plan.processes.map(unlike),
    nodes: plan.nodes.map(unlike),
  }
}

async function turn(
  stage: Stage,
  off: ReadonlySet<Switch>,
  client: number,
  workMs: number,
  endMs: number,
): Promise<void> {
  const waitMs = Math.max(0, endMs - stage.nowMs)
  if (off.has('protocol')) {
    const lock = await lockByHand(stage, client, waitMs, {
      checksOwner: !off.has('check-and-delete'),
      quorum: !off.has('quorum') && stage.world.plan.nodes.length > 1,
      renews: !off.has('renewal'),
      ttlMs: stage.world.plan.ttlMs,
    })
    if (lock === undefined) return
    await stage.count(client, asWriter(lock), 'unguarded', workMs)
    return lock.release()
  }
  const lease = await stage.acquire(client, { waitMs, renew: !off.has('renewal') })
  if (lease === undefined) return
  const token = off.has('tokens') ? 0n : lease.token
  // Without tokens a guard has nothing to compare.
  const store = off.has('guard') || off.has('tokens') ? 'unguarded' : 'guarded'
  const writer = {
    owner: lease.owner,
    token,
    get held() {
      return lease.held
    },
  }
  await stage.count(client, writer, store, workMs)
  if (off.has('check-and-delete')) {
    stage.note(client, 'deletes the lock key')
    for (const node of stage.world.plan.nodes.keys())
      void stage
        .client(client, node)
        .run(['DEL', 'a'])
        .catch(() => 0)
  }
  await stage.release(client, lease)
}

function asWriter(lock: OwnLock): { owner: string; token: bigint; readonly held: boolean } {
  return {
    owner: '',
    token: 0n,
    get held() {
      return lock.held
    },
  }
}
