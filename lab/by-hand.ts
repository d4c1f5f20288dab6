import { sleep } from '../src/clock.ts'
import type { Stage } from '../sim/scenarios/stage.ts'

/** What a lock that is written by hand does right, if at all. */
export interface Manners {
  readonly checksOwner: boolean
  readonly quorum: boolean
  readonly renews: boolean
  readonly ttlMs: number
}

export interface OwnLock {
  readonly held: boolean
  release(): Promise<void>
}

const PATIENCE_MS = 50
const AGAIN_MS = 20
const COMPARE_AND_DELETE =
  "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"

/**
 * A lock as it is often written by hand: SET NX PX, and again after a fixed time. A time-out is taken for a no, nothing is undone, and
 * a renewal is waited for, without a look at the clock. Without a quorum, the first node that answers will do.
 */
export async function lockByHand(
  stage: Stage,
  process: number,
  waitMs: number,
  manners: Manners,
): Promise<OwnLock | undefined> {
  const workload = stage.world.workloads[process]!
  const call = workload.asks(['a'], waitMs)
  const lastMs = stage.nowMs + waitMs
  const told = new Set<string>()
  /** Once a call: it is the same again and again. */
  const tell = (what: string, text: string): void => {
    if (!told.has(what)) stage.note(process, text)
    told.add(what)
  }
  for (let attempt = 0; stage.nowMs <= lastMs; attempt++) {
    const owner = `p${process}-${stage.nowMs.toFixed(0)}-${attempt}`
    const nodes = await votes(stage, process, owner, manners)
    const [silent] = nodes.silent
    if (silent !== undefined) tell('silent', `hears nothing from n${silent}, and takes that for a no`)
    else if (nodes.given.length > 0 && !nodes.isEnough) {
      const all = stage.world.plan.nodes.length
      tell('split', `has ${nodes.given.length} of ${all} votes, which is no majority`)
    }
    if (nodes.isEnough) {
      workload.returns(call, 'granted')
      return hold(stage, process, owner, nodes.given, manners)
    }
    await Promise.all(nodes.given.map((node) => soon(stage, process, drop(stage, process, node, owner, manners))))
    await sleep(stage.process(process), AGAIN_MS)
  }
  workload.returns(call, 'timed out')
  return undefined
}

async function votes(
  stage: Stage,
  process: number,
  owner: string,
  { quorum, ttlMs }: Manners,
): Promise<{ given: readonly number[]; silent: readonly number[]; isEnough: boolean }> {
  const all = [...stage.world.plan.nodes.keys()]
  const ask = (node: number): Promise<unknown> =>
    soon(stage, process, stage.client(process, node).run(['SET', 'a', owner, 'NX', 'PX', String(ttlMs)]))
  if (quorum) {
    const answers = await Promise.all(all.map(ask))
    const given = all.filter((node) => answers[node] === 'OK')
    const silent = all.filter((node) => answers[node] === undefined)
    return { given, silent, isEnough: given.length * 2 > all.length }
  }
  const silent: number[] = []
  for (const node of all) {
    const answer = await ask(node)
    if (answer !== undefined) return { given: answer === 'OK' ? [node] : [], silent, isEnough: answer === 'OK' }
    silent.push(node)
  }
  return { given: [], silent, isEnough: false }
}

function hold(stage: Stage, process: number, owner: string, nodes: readonly number[], manners: Manners): OwnLock {
  // The one who holds it has no other idea of its end than to renew it in time.
  const belief = stage.believes(process, manners.renews ? Infinity : stage.nowMs + manners.ttlMs)
  const endMs = stage.nowMs + manners.ttlMs
  let isOver = false
  const end = (): void => {
    if (!isOver) belief.end()
    isOver = true
  }
  const renew = async (): Promise<void> => {
    await sleep(stage.process(process), manners.ttlMs / 3)
    if (isOver) return
    const renewing = nodes.map((node) => stage.client(process, node).run(['PEXPIRE', 'a', String(manners.ttlMs)]))
    const answers = await Promise.all(renewing.map((answer) => answer.catch(() => 0)))
    if (answers.filter((answer) => answer === 1).length * 2 > nodes.length) return renew()
    return end()
  }
  if (manners.renews) void renew()
  return {
    get held() {
      return !isOver && (manners.renews || stage.nowMs < endMs)
    },
    async release() {
      const dropped = nodes.map((node) => soon(stage, process, drop(stage, process, node, owner, manners)))
      end()
      await Promise.all(dropped)
    },
  }
}

function drop(stage: Stage, process: number, node: number, owner: string, manners: Manners): Promise<unknown> {
  const command = manners.checksOwner ? ['EVAL', COMPARE_AND_DELETE, '1', 'a', owner] : ['DEL', 'a']
  return stage.client(process, node).run(command)
}

/** The answer, or nothing if it takes too long: it may come yet, and nobody looks. */
function soon(stage: Stage, process: number, answer: Promise<unknown>): Promise<unknown> {
  const tooLong = sleep(stage.process(process), PATIENCE_MS).then(() => undefined)
  return Promise.race([answer.catch(() => undefined), tooLong])
}
