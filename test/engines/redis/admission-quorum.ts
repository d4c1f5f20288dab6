import { cpSync, readdirSync } from 'node:fs'
import path from 'node:path'
import type { Locks } from '../../../src/locks.ts'
import { startProxy, type Proxy } from '../../../harness/faults/proxy.ts'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { createFolder, emptyFolder, giveToServer, removeFolder } from '../../../harness/temporary-folder.ts'
import { until } from '../../../harness/until.ts'
import { lockKeysBecome, type Quorum } from './faults-quorum.ts'

/** Whether a few tries were all refused, one way or the other: because it is held, or because too few nodes may vote. */
export async function refused(locks: Locks, resource = 'order'): Promise<boolean> {
  for (let attempt = 0; attempt < 3; attempt++) {
    const lease = await locks.tryAcquire(resource).catch(() => null)
    if (lease !== null) return false
  }
  return true
}

/** It takes clients a moment to reach a node again. */
export function allAnswer({ engine }: Locks): Promise<boolean> {
  const answers = async (): Promise<boolean> => (await engine.probe!()).every(({ error }) => error === undefined)
  return until(answers, { what: 'all nodes answer', withinMs: 20_000 })
}

/** A lease on the first two of three nodes: its holder does not reach the third, which a rival does. */
export async function heldOnTwo(quorum: Quorum): Promise<{ holder: Locks; proxy: Proxy }> {
  const ports = quorum.nodes.map(({ port }) => port)
  const proxy = await startProxy(ports[2]!)
  const holder = quorum.locks({ renew: false }, {}, [ports[0]!, ports[1]!, proxy.port])
  await (await holder.acquire('warm-up')).release()
  await lockKeysBecome(quorum.nodes, [])
  proxy.dropRequests(true)
  return { holder, proxy }
}

/** The data of a server, to be put in the place of its own, or of another one's, while that is down. */
export async function copyOf(
  node: RedisServer,
  into: RedisServer = node,
): Promise<{ putBack: () => void } & AsyncDisposable> {
  const [from, data] = await Promise.all([node, into].map(folderOf))
  const folder = createFolder('copy')
  cpSync(from!, folder, { recursive: true })
  return {
    putBack: () => {
      emptyFolder(data!)
      cpSync(folder, data!, { recursive: true })
      for (const name of readdirSync(data!, { recursive: true })) giveToServer(path.join(data!, String(name)))
    },
    async [Symbol.asyncDispose]() {
      removeFolder(folder)
    },
  }
}

async function folderOf(node: RedisServer): Promise<string> {
  return (await node.cli('CONFIG', 'GET', 'dir')).split('\n')[1]!
}
