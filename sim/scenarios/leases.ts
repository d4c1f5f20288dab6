import { cut, delay, quiet, Stage } from './stage.ts'
import { lostUpdate, twoHolders, type Played, type Scenario } from './scenario.ts'

/** Failures that no lease can help by itself: what the store must check. And a node that forgets, which a lease can help. */

const UNGUARDED = 'the store takes every write'
const GUARDED = 'the store refuses a token lower than the highest it has seen'

/** Two who both take the lease, the second while the first still works, and count. */
interface TwoWriters {
  readonly stage: Stage
  readonly firstWorksMs: number
  readonly secondAtMs: number
  readonly secondWaitMs?: number
  readonly renew?: boolean
  readonly beforeFirstWrite?: () => void
  readonly afterFirst?: () => void
  readonly forMs?: number
}

async function twoWriters(remedied: boolean, script: TwoWriters): Promise<Played> {
  const { stage } = script
  const store = remedied ? 'guarded' : 'unguarded'
  stage.start(0, 0, async () => {
    const lease = await stage.acquire(0, { renew: script.renew ?? true })
    script.afterFirst?.()
    if (lease !== undefined) await stage.count(0, lease, store, script.firstWorksMs, script.beforeFirstWrite)
  })
  stage.start(script.secondAtMs, 1, async () => {
    const lease = await stage.acquire(1, { waitMs: script.secondWaitMs ?? 3000 })
    if (lease === undefined) return
    await stage.count(1, lease, store, 300)
    await stage.release(1, lease)
  })
  await stage.play(script.forMs ?? 6000)
  return { stage, damage: lostUpdate(stage, store) }
}

const pausedHolder: Scenario = {
  name: 'paused-holder',
  title: 'a holder is paused right before its write, for longer than its lease',
  assumption: 'that a process does not stand still between its check and its write: nobody can promise that',
  without: UNGUARDED,
  remedy: GUARDED,
  play(remedied, faults) {
    const stage = new Stage(quiet(), faults)
    const pause = (): void => {
      stage.note(0, 'looks: the lease is held. Then it is paused for 1300 ms')
      stage.process(0).pause(1300)
    }
    return twoWriters(remedied, { stage, firstWorksMs: 200, secondAtMs: 1300, beforeFirstWrite: pause })
  },
}

const ninetySeconds: Scenario = {
  name: 'ninety-second-delay',
  title: 'a write spends 90 seconds in the network',
  assumption: 'that a write arrives before the lease is over',
  without: UNGUARDED,
  remedy: GUARDED,
  play(remedied, faults) {
    const stage = new Stage(quiet(), faults)
    const slow = (): void => {
      stage.note(0, 'sends its write, which takes 90 s')
      delay(stage, 0, 'store', 90_000)
      stage.at(stage.nowMs + 50, () => {
        stage.note(0, 'crashes')
        stage.process(0).crash()
      })
    }
    return twoWriters(remedied, { stage, firstWorksMs: 100, secondAtMs: 89_850, beforeFirstWrite: slow, forMs: 92_000 })
  },
}

const clockJump: Scenario = {
  name: 'clock-jump',
  title: 'the clock of one node jumps ahead (Kleppmann, first)',
  assumption: 'clocks do not jump: one node is enough where the lease rests on a bare majority',
  without: UNGUARDED,
  remedy: GUARDED,
  play(remedied, faults) {
    const stage = new Stage(quiet({ nodes: 5, restart: 'trust' }), faults)
    cut(stage, 0, [3, 4])
    cut(stage, 1, [0, 1])
    stage.note(0, 'p0 can reach n0, n1, n2; p1 can reach n2, n3, n4')
    stage.at(100, () => {
      stage.note(0, 'the clock of n2 jumps ahead by 2 s')
      stage.world.servers[2]!.clock.jump(2000)
    })
    return twoWriters(remedied, { stage, firstWorksMs: 400, secondAtMs: 150 })
  },
}

const driftBeyond: Scenario = {
  name: 'clock-drift',
  title: 'the clocks of the nodes run half as fast again as the holder’s',
  assumption: 'clocks run at the same speed within the allowance of a hundredth',
  without: UNGUARDED,
  remedy: GUARDED,
  play(remedied, faults) {
    const stage = new Stage(quiet({ restart: 'trust' }), faults)
    for (const { clock } of stage.world.servers) clock.drift(1.5)
    return twoWriters(remedied, { stage, firstWorksMs: 900, secondAtMs: 600, renew: false })
  },
}

const failover: Scenario = {
  name: 'failover',
  title: 'a replica is promoted that has not got the lease',
  assumption: 'the server does not forget: replication is asynchronous',
  without: UNGUARDED,
  remedy: GUARDED,
  play(remedied, faults) {
    const stage = new Stage(quiet({ nodes: 1 }), faults)
    const fail = (): void => {
      stage.note(0, 'n0 dies, and its replica takes over, 100 ms behind')
      stage.world.servers[0]!.failOver()
    }
    return twoWriters(remedied, { stage, firstWorksMs: 300, secondAtMs: 150, afterFirst: fail })
  },
}

const eviction: Scenario = {
  name: 'eviction',
  title: 'a server that is short of memory evicts the lock key',
  assumption: 'lock keys are neither evicted nor deleted by others',
  without: UNGUARDED,
  remedy: GUARDED,
  play(remedied, faults) {
    const stage = new Stage(quiet({ nodes: 1 }), faults)
    stage.at(100, () => {
      stage.note(0, 'n0 evicts the lock key')
      stage.world.servers[0]!.redis.run(['DEL', 'a'])
    })
    return twoWriters(remedied, { stage, firstWorksMs: 300, secondAtMs: 150 })
  },
}

const restartedEmpty: Scenario = {
  name: 'node-restarted-empty',
  title: 'a node restarts without its memory and votes for the next one',
  assumption: 'none: nodes restart',
  without: "restart: 'trust': it votes at once",
  remedy: "restart: 'auto': it sits out until every lease it may have forgotten is over",
  async play(remedied, faults) {
    const stage = new Stage(quiet({ restart: remedied ? 'auto' : 'trust' }), faults)
    // Everyone has used the nodes before: this is no new deployment.
    stage.start(0, 1, async () => {
      const lease = await stage.acquire(1)
      if (lease !== undefined) await stage.release(1, lease)
    })
    stage.at(200, () => {
      stage.note(0, 'p0 can reach n0 and n1; p1 can reach n1 and n2')
      cut(stage, 0, [2])
      cut(stage, 1, [0])
    })
    stage.start(210, 0, async () => void (await stage.acquire(0)))
    stage.at(300, () => {
      stage.note(0, 'n1 restarts empty')
      stage.world.servers[1]!.crash()
      stage.world.servers[1]!.restart('none')
    })
    stage.start(600, 1, async () => void (await stage.acquire(1)))
    await stage.play(2000)
    return { stage, damage: twoHolders(stage) }
  },
}

export const LEASES: readonly Scenario[] = [
  pausedHolder,
  ninetySeconds,
  clockJump,
  driftBeyond,
  failover,
  eviction,
  restartedEmpty,
]
