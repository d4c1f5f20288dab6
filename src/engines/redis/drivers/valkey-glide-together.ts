import type { Send } from '../client.ts'

/**
 * One command after the other on GLIDE's one connection to a server. (A Batch would need its class, which is the driver's,
 * and would not help against redirections.) Should GLIDE reconnect in between, WAIT would count on a connection that wrote
 * nothing, and return every replica. So the connection must be the same before and after, or the outcome is unknown.
 */
export async function together(send: Send, commands: readonly (readonly string[])[]): Promise<readonly unknown[]> {
  const before = await send(['CLIENT', 'ID'])
  const replies: unknown[] = []
  for (const command of commands) replies.push(await send(command))
  const after = await send(['CLIENT', 'ID'])
  if (after !== before) throw new Error('the connection changed between two commands that belong together')
  return replies
}

/**
 * On a Cluster GLIDE follows a redirection silently: the write would go to the node that takes the slot over, the WAIT to the
 * old one. So the slot must be the node's own, and not on its way to another one, when all commands are done.
 */
export async function togetherInSlot(
  send: Send,
  commands: readonly (readonly string[])[],
  slot: number,
): Promise<readonly unknown[]> {
  const [nodes, ...replies] = (await together(send, [...commands, ['CLUSTER', 'NODES']])).toReversed()
  if (!holds(String(nodes), slot))
    throw new Error(`slot ${slot} is being moved between two commands that belong together`)
  return replies.toReversed()
}

/** Of `CLUSTER NODES`, the line of the node itself ends with its slots, such as `5 10-20 [15->-id of the next owner]`. */
function holds(nodes: string, slot: number): boolean {
  const own = nodes.split('\n').find((line) => line.includes('myself')) ?? ''
  const slots = own.split(' ').slice(FIELDS_BEFORE_SLOTS)
  if (slots.some((item) => item.startsWith(`[${slot}-`))) return false
  return slots.some((item) => {
    const [first, last = first] = item.split('-').map(Number)
    return first !== undefined && last !== undefined && first <= slot && slot <= last
  })
}

/** Id, address, flags, master, ping, pong, epoch, link state. */
const FIELDS_BEFORE_SLOTS = 8
