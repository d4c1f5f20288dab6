import { redirectionOf } from './server-errors.ts'

/** How one driver reaches single nodes of its Cluster. */
export interface ClusterNodes<Node> {
  /** The master of a key; `stale`: the driver's map of slots is out of date and must be read again. */
  master(key: string, stale: boolean): Promise<Node>
  at(address: string): Promise<Node | undefined>
  send(node: Node, commands: readonly (readonly string[])[]): Promise<readonly unknown[]>
}

/**
 * Sends commands back to back to the key's master. Drivers follow redirections of single commands but not of these, since
 * the WAIT among them succeeds anywhere; nothing has happened where MOVED or ASK was the answer, so they are sent again.
 */
export async function togetherOnCluster<Node>(
  nodes: ClusterNodes<Node>,
  commands: readonly (readonly string[])[],
  key: string,
): Promise<readonly unknown[]> {
  try {
    return await nodes.send(await nodes.master(key, false), commands)
  } catch (error) {
    const redirection = redirectionOf(error)
    if (redirection === undefined) throw error
    const { kind, address } = redirection
    if (kind === 'MOVED') {
      // The driver's map may be overwritten at the same moment by an older one, so the answer itself counts first.
      const master = await nodes.master(key, true)
      return nodes.send((await nodes.at(address)) ?? master, commands)
    }
    const importing = await nodes.at(address)
    if (importing === undefined) throw error
    // ASKING holds for the next command only: the first of ours.
    return (await nodes.send(importing, [['ASKING'], ...commands])).slice(1)
  }
}

/** Commands without a key of their own, which a driver would send to any node of a Cluster, or to all of them. */
const KEYLESS = new Set(['SCRIPT', 'WAIT', 'WAITAOF', 'INFO', 'TIME', 'CONFIG', 'PING', 'SCAN', 'CLIENT', 'FUNCTION'])

export function isKeyless(command: readonly string[]): boolean {
  return KEYLESS.has(command[0]?.toUpperCase() ?? '')
}
