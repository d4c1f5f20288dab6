import { cut, quiet, Stage } from './stage.ts'
import { twoHolders, type Scenario } from './scenario.ts'

/** Nodes that come back without what they had, and clients that do not agree on the nodes. */

const TRUSTS = "restart: 'trust': nodes vote at once"
const SITS_OUT = "restart: 'auto': a node that may have forgotten leases sits out"
/** A server that has been up for a day. */
const LONG_UP_MS = 86_400_000

/** Takes the lease and gives it back, so that the nodes are in use. */
async function use(stage: Stage, process: number): Promise<void> {
  const lease = await stage.acquire(process)
  if (lease !== undefined) await stage.release(process, lease)
}

/** p0 can reach n0 and n1, p1 can reach n1 and n2: what n1 has forgotten, nobody else can tell. */
function divide(stage: Stage): void {
  stage.note(0, 'p0 can reach n0 and n1; p1 can reach n1 and n2')
  cut(stage, 0, [2])
  cut(stage, 1, [0])
}

const rollingRestart: Scenario = {
  name: 'rolling-restart',
  title: 'nodes without persistence restart one after the other, a majority is up at every moment',
  assumption: 'none: nodes restart',
  without: TRUSTS,
  remedy: SITS_OUT,
  async play(remedied, faults) {
    const stage = new Stage(quiet({ restart: remedied ? 'auto' : 'trust', ttlMs: 4000, maxTtlMs: 4000 }), faults)
    stage.start(0, 1, () => use(stage, 1))
    stage.start(100, 0, async () => void (await stage.acquire(0)))
    for (const node of [0, 1, 2]) {
      stage.at(200 + 200 * node, () => {
        stage.note(0, `n${node} restarts empty`)
        stage.world.servers[node]!.crash()
        stage.world.servers[node]!.restart('none')
      })
    }
    for (const ms of [250, 450, 650]) stage.start(ms, 1, async () => void (await stage.acquire(1)))
    await stage.play(2500)
    return { stage, damage: twoHolders(stage) }
  },
}

const allEmpty: Scenario = {
  name: 'all-nodes-empty',
  title: 'all nodes restart empty at once, and a process looks at them that has just started',
  assumption: 'that the nodes of a quorum do not all forget at once',
  without: "restart: 'auto': nothing tells it from a new deployment",
  remedy: "restart: 'strict': nodes without a trace of use sit out, also those of a new deployment",
  async play(remedied, faults) {
    const stage = new Stage(quiet({ restart: remedied ? 'strict' : 'auto', ttlMs: 2000 }), faults)
    // The nodes of a new deployment sit out, too.
    const atMs = remedied ? 8000 : 0
    if (remedied) stage.start(0, 0, () => use(stage, 0))
    stage.start(atMs + 10, 0, async () => void (await stage.acquire(0)))
    stage.at(atMs + 100, () => {
      stage.note(0, 'all nodes restart empty')
      for (const server of stage.world.servers) {
        server.crash()
        server.restart('none')
      }
    })
    // It has not used the nodes before.
    stage.start(atMs + 120, 1, async () => void (await stage.acquire(1)))
    await stage.play(atMs + 3000)
    return { stage, damage: twoHolders(stage) }
  },
}

const warmSpare: Scenario = {
  name: 'warm-spare',
  title: 'a node is replaced by an empty server that has been running for a day',
  assumption: 'none: nodes are replaced',
  without: TRUSTS,
  remedy: "restart: 'auto': a node without a trace of this quorum sits out, however long it has been up",
  async play(remedied, faults) {
    const stage = new Stage(quiet({ restart: remedied ? 'auto' : 'trust' }), faults)
    stage.start(0, 1, () => use(stage, 1))
    stage.at(200, () => divide(stage))
    stage.start(210, 0, async () => void (await stage.acquire(0)))
    stage.at(300, () => {
      stage.note(0, 'n1 is replaced by an empty server that has been up for a day')
      stage.world.servers[1]!.crash()
      stage.world.servers[1]!.restart('none', { upMs: LONG_UP_MS })
    })
    stage.start(600, 1, async () => void (await stage.acquire(1)))
    await stage.play(2000)
    return { stage, damage: twoHolders(stage) }
  },
}

const restoredCopy: Scenario = {
  name: 'restored-copy',
  title: 'a node that keeps every write is restored from a copy of seven seconds ago',
  assumption: 'none, if the copy is older than a node sits out; a younger one cannot be noticed',
  without: TRUSTS,
  remedy: "restart: 'auto': it was last used too long ago, by its own stamp, and sits out",
  async play(remedied, faults) {
    const always = { rate: 1, aheadMs: 0, persistence: 'always', replicaLagMs: 100 } as const
    const plan = quiet({ restart: remedied ? 'auto' : 'trust', ttlMs: 1000 })
    const stage = new Stage({ ...plan, nodes: [always, always, always] }, faults)
    stage.start(0, 1, () => use(stage, 1))
    stage.at(7000, () => divide(stage))
    stage.start(7010, 0, async () => void (await stage.acquire(0)))
    stage.at(7300, () => {
      stage.note(0, 'n1 is restored from a copy of 7 s ago')
      stage.world.servers[1]!.crash()
      stage.world.servers[1]!.restart('kept', { copyMs: 7000 })
    })
    stage.start(7400, 1, async () => void (await stage.acquire(1)))
    await stage.play(9000)
    return { stage, damage: twoHolders(stage) }
  },
}

const otherList: Scenario = {
  name: 'other-list-of-nodes',
  title: 'one client has been given five nodes, the other three of them',
  assumption: 'all clients of a quorum have the same list of nodes',
  without: 'the lists differ: three of five and two of three need not meet',
  remedy: 'both have the same five nodes',
  async play(remedied, faults) {
    const plan = quiet({ nodes: 5 })
    const [first, second] = plan.processes
    const processes = remedied ? plan.processes : [first!, { ...second!, nodes: [2, 3, 4] }]
    const stage = new Stage({ ...plan, processes }, faults)
    stage.start(0, 1, () => use(stage, 1))
    stage.start(20, 0, () => use(stage, 0))
    stage.at(8000, () => {
      stage.note(0, 'p0 can not reach n3 and n4')
      cut(stage, 0, [3, 4])
    })
    stage.start(8010, 0, async () => void (await stage.acquire(0)))
    stage.start(8400, 1, async () => void (await stage.acquire(1)))
    await stage.play(9500)
    return { stage, damage: twoHolders(stage) }
  },
}

const otherMaxTtl: Scenario = {
  name: 'shorter-max-ttl',
  title: 'a client with a shorter maxTtl lets a node vote while a longer lease is not over',
  assumption: 'all clients of a quorum have the same maxTtl',
  without: 'maxTtl is 12 s for one and 5 s for the other',
  remedy: 'maxTtl is 12 s for both',
  async play(remedied, faults) {
    const plan = quiet({ ttlMs: 12_000, maxTtlMs: 12_000 })
    const [first, second] = plan.processes
    const processes = remedied ? plan.processes : [first!, { ...second!, maxTtlMs: 5000 }]
    const stage = new Stage({ ...plan, processes }, faults)
    const ttlMs = 4000
    stage.start(0, 0, () => use(stage, 0))
    // Each has nodes sit out for its own time before it uses them.
    stage.start(50, 1, async () => {
      const lease = await stage.acquire(1, { ttlMs, waitMs: 10_000 })
      if (lease !== undefined) await stage.release(1, lease)
    })
    stage.at(14_000, () => divide(stage))
    stage.start(14_010, 0, async () => void (await stage.acquire(0, { renew: false })))
    stage.at(14_100, () => {
      stage.note(0, 'n1 restarts empty')
      stage.world.servers[1]!.crash()
      stage.world.servers[1]!.restart('none')
    })
    stage.start(14_200, 1, async () => void (await stage.acquire(1, { ttlMs, waitMs: 8000 })))
    await stage.play(28_000)
    return { stage, damage: twoHolders(stage) }
  },
}

export const NODES: readonly Scenario[] = [rollingRestart, allEmpty, warmSpare, restoredCopy, otherList, otherMaxTtl]
