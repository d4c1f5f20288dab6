import { engineErrorFrom } from '../shared/errors.ts'
import { SittingOutError } from './voters/admission.ts'
import type { Electorate, NodeStanding } from './voters/electorate.ts'
import type { RedisNode } from './node.ts'

/**
 * Lets the nodes of a new deployment vote before their first use. A node that is new while others are in use is not let
 * in: it may stand in for a node that has voted and lost its data, and sits out like that one.
 */
export async function initNodes(
  nodes: readonly RedisNode[],
  electorate: Electorate | undefined,
  inTime: <T>(work: Promise<T>) => Promise<T>,
): Promise<readonly string[]> {
  if (electorate === undefined) {
    await Promise.all(nodes.map((node) => named(node.label, inTime(node.client.run(['PING'])))))
    const why = nodes.length === 1 ? 'one server needs nothing' : "needs nothing, with restart: 'trust'"
    return nodes.map(({ label }) => `${label}: ${why}`)
  }
  const seen = await electorate.standings()
  // All nodes must answer: three of five cannot tell a new deployment from one that lost its data.
  for (const { label, error } of seen) if (error !== undefined) await named(label, Promise.reject(error))
  return Promise.all(nodes.map(({ label, admission }, index) => named(label, entered(seen[index]!, admission!))))
}

async function entered(
  { label, standing }: NodeStanding,
  admission: NonNullable<RedisNode['admission']>,
): Promise<string> {
  try {
    await admission.enter(Infinity)
  } catch (error) {
    if (!(error instanceof SittingOutError)) throw error
    return `${label}: ${error.message}, and votes by itself after that`
  }
  if (standing?.kind !== 'welcome') return `${label}: in use, votes`
  switch (standing.why) {
    case 'new':
      return `${label}: new, stamped; votes from now on`
    case 'has sat out':
      return `${label}: has sat out; votes again`
    case 'forgets nothing':
      return (
        `${label}: restarted and forgot nothing; votes again. (If its data is a copy that was put back, and the copy is ` +
        'younger than the time of sitting out, that is not noticed: delete its key ringfence:stamp first, then it sits out.)'
      )
  }
}

async function named<T>(label: string, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (cause) {
    throw engineErrorFrom(cause, label, [])
  }
}
