import { EngineError } from '../../errors.ts'
import { SittingOutError } from './admission.ts'
import type { RedisNode } from './node.ts'

/**
 * Lets the nodes of a new deployment vote ahead of their first use. A node that is new while others are in use is not let
 * in: it may stand in for one that has voted and lost its memory, and sits out like that one.
 */
export async function initNodes(
  nodes: readonly RedisNode[],
  inTime: <T>(work: Promise<T>) => Promise<T>,
): Promise<readonly string[]> {
  const inUse = await Promise.all(nodes.map((node) => named(node, inTime(node.admission.inUse()))))
  if (nodes.length === 1) return [`${nodes[0]!.label}: one server needs nothing`]
  if (inUse.every((used) => !used)) {
    return Promise.all(
      nodes.map(async (node) => {
        await named(node, inTime(node.admission.loadNew()))
        return `${node.label}: new, stamped; votes from now on`
      }),
    )
  }
  return Promise.all(nodes.map((node) => named(node, inTime(look(node)))))
}

async function look({ admission, label }: RedisNode): Promise<string> {
  try {
    await admission.load()
    return `${label}: in use, votes`
  } catch (error) {
    if (!(error instanceof SittingOutError)) throw error
    if (await admission.loadDurable()) return `${label}: restarted and forgot nothing; votes again`
    return `${label}: ${error.message}; left as it is`
  }
}

/** All nodes must answer: three that do, of five, can't tell a new deployment from one that lost its memory. */
async function named<T>({ label }: RedisNode, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (cause) {
    throw new EngineError(`${label}: ${cause instanceof Error ? cause.message : String(cause)}`, [], { cause })
  }
}
