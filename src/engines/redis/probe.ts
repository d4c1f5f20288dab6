import { given } from '../../arguments.ts'
import type { Clock } from '../../clock.ts'
import type { NodeState, ServerMemory } from '../../engine.ts'
import { probed, silent } from '../shared/probe.ts'
import type { RedisClient, RedisMaster } from './client.ts'
import { timeOf } from './doctor/clocks.ts'
import { ServerFacts } from './doctor/facts.ts'
import { messageOf, ANSWER_MS, within, type ServerReply } from './doctor/server.ts'

/** The quickest of these readings says most: the others had to wait somewhere. */
const READINGS = 3

interface Probed {
  readonly client: RedisClient
  readonly label: string
}

/** How each server answers now, all asked at the same time. */
export async function probeRedis(nodes: readonly Probed[], clock: Clock): Promise<readonly NodeState[]> {
  return (await Promise.all(nodes.map((node) => probeNode(node, clock)))).flat()
}

async function probeNode({ client, label }: Probed, clock: Clock): Promise<readonly NodeState[]> {
  try {
    const unusable = client.unusable()
    if (unusable !== undefined) return [silent(label, unusable)]
    const reply = await within(client, clock, ANSWER_MS, () => client.masters())
    if (reply.kind === 'error') return [silent(label, reply.message)]
    const masters = reply.value as readonly RedisMaster[]
    if (masters.length === 0) return [silent(label, 'its client knows no master')]
    return await Promise.all(
      masters.map((master) => probeMaster(client, client.cluster ? master.label : label, master, clock)),
    )
  } catch (error) {
    return [silent(label, messageOf(error))]
  }
}

async function probeMaster(client: RedisClient, node: string, master: RedisMaster, clock: Clock): Promise<NodeState> {
  const run = (...command: readonly string[]): Promise<ServerReply> =>
    within(client, clock, ANSWER_MS, () => master.run(command))
  const readTime = async (): Promise<number | undefined> => {
    const reply = await run('TIME')
    if (reply.kind === 'error') throw new Error(reply.message)
    return Array.isArray(reply.value) ? timeOf(reply.value) : undefined
  }
  let best: NodeState | undefined
  for (let index = 0; index < READINGS; index++) {
    const state = await probed(node, clock, readTime, messageOf)
    if (state.error !== undefined) return state
    if (best === undefined || state.roundTripMs! < best.roundTripMs!) best = state
  }
  // Not everyone may ask for it.
  const info = await run('INFO').catch(() => undefined)
  const facts = info === undefined ? undefined : new ServerFacts(info, [])
  return { ...best!, ...given({ run: facts?.info('run_id'), memory: facts && memoryOf(facts) }) }
}

/** Undefined where the server does not tell. */
function memoryOf(facts: ServerFacts): ServerMemory | undefined {
  const [usedBytes, limitBytes, evictedKeys] = ['used_memory', 'maxmemory', 'evicted_keys'].map((name) =>
    facts.number(name),
  )
  if (usedBytes === undefined || evictedKeys === undefined) return undefined
  return { usedBytes, evictedKeys, ...(limitBytes === undefined || limitBytes === 0 ? {} : { limitBytes }) }
}
