import type { Clock } from '../../clock.ts'
import type { NodeState } from '../../engine.ts'
import type { RedisClient, RedisMaster } from './client.ts'
import { timeOf } from './doctor/clocks.ts'
import { messageOf, ANSWER_MS, within } from './doctor/server.ts'

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
  let best: NodeState | undefined
  try {
    for (let index = 0; index < READINGS; index++) {
      const sentWallMs = clock.wallMs()
      const sentMs = clock.monotonicMs()
      const reply = await within(client, clock, ANSWER_MS, () => master.run(['TIME']))
      const roundTripMs = clock.monotonicMs() - sentMs
      if (reply.kind === 'error') return silent(node, reply.message)
      if (best !== undefined && best.roundTripMs! <= roundTripMs) continue
      const serverMs = Array.isArray(reply.value) ? timeOf(reply.value) : undefined
      const clockOffsetMs = serverMs === undefined ? undefined : serverMs - (sentWallMs + roundTripMs / 2)
      best = { node, roundTripMs, clockOffsetMs }
    }
    return best!
  } catch (error) {
    return silent(node, messageOf(error))
  }
}

function silent(node: string, error: string): NodeState {
  return { node, roundTripMs: undefined, clockOffsetMs: undefined, error }
}
