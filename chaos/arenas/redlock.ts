import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { isAvailable } from '../../harness/binaries.ts'
import { startGroup } from '../../harness/group.ts'
import { portsOf, startTarget, stopTargets, type Arena, type Copy, type Target } from '../arena.ts'

const TTL_MS = 1500
/**
 * A node that forgot its counters sits out for this long. It must be longer than the leases, and for the order of tokens
 * longer than 4 s and what the nodes' clocks differ by (docs/guarantees.md): that is what the jumps are bounded by.
 */
const MAX_TTL_MS = 8000
/** The shortest that a node sits out, where no clock jumps. */
const SHORT_MAX_TTL_MS = 5000
/** Beyond every lease, so that a jump ahead ends those of its node. */
const JUMP_MS = 3000
/** Redis counts its uptime in whole seconds. */
const UPTIME_GRAIN_MS = 1000

interface Nodes {
  /** One that keeps every write, or one that forgets all when it crashes, for each of the nodes. */
  readonly durable: readonly boolean[]
  readonly maxTtlMs: number
  readonly clockShift: boolean
}

/** Five Redis servers: two that keep every write, three that forget all when they crash. */
export function redlockArena(): Promise<Arena> {
  const durable = [true, true, false, false, false]
  return arenaOf({ durable, maxTtlMs: MAX_TTL_MS, clockShift: isAvailable('clock-shift') })
}

/** Three that all forget, also one after the other until none is left that remembers, and can be replaced. */
export async function forgetfulArena(): Promise<Arena> {
  const arena = await arenaOf({ durable: [false, false, false], maxTtlMs: SHORT_MAX_TTL_MS, clockShift: false })
  return { ...arena, first: ['all servers emptied in turn', 'server replaced by an empty one'] }
}

async function arenaOf({ durable, maxTtlMs, clockShift }: Nodes): Promise<Arena> {
  const starts = durable.map((isDurable) => () => startRedis({ durable: isDurable, clockShift }))
  // Besides, an empty one that has been up for as long as the others.
  const { nodes } = await startGroup([...starts, () => startRedis({ clockShift })])
  const spare = { server: nodes.pop()! }
  const sitOutMs = maxTtlMs + 2 * UPTIME_GRAIN_MS
  const targets = await Promise.all(
    nodes.map((node, index) =>
      (durable[index] === true ? durableTarget : forgetful)(`redis-${index + 1}`, node, sitOutMs),
    ),
  )
  for (const target of clockShift ? targets : []) {
    target.clock = { shift: (ms) => target.server.shiftClock(ms), jumpMs: JUMP_MS }
  }
  const last = targets.at(-1)!
  last.replace = () => replace(last, spare)
  return {
    connector: 'redlock',
    targets,
    majority: Math.floor(nodes.length / 2) + 1,
    ttlMs: TTL_MS,
    settleMs: TTL_MS + 1000,
    mostGapMs: 15_000,
    // A key that was set while its node's clock was ahead lasts longer by that.
    clearMs: TTL_MS + JUMP_MS + 5000,
    env: (client) => ({
      RINGFENCE_PORTS: portsOf(targets, client).join(','),
      RINGFENCE_DRIVER: client % 3 === 0 ? 'node-redis' : 'ioredis',
      RINGFENCE_REDLOCK_OPTIONS: JSON.stringify({ maxTtl: maxTtlMs }),
    }),
    leftovers: async () => (await Promise.all(targets.map(({ name, server }) => keysOn(name, server)))).flat(),
    [Symbol.asyncDispose]: async () => {
      await stopTargets(targets)
      await spare.server.stop()
    },
  }
}

/** Which server it is may change. */
type RedisTarget = Omit<Target, 'server' | 'clock' | 'replace'> & {
  server: RedisServer
  clock?: NonNullable<Target['clock']>
  replace?: NonNullable<Target['replace']>
}

async function forgetful(name: string, server: RedisServer, sitOutMs: number): Promise<RedisTarget> {
  return { ...(await startTarget(name, server, { memory: 'lost', sitOutMs })), server }
}

async function durableTarget(name: string, server: RedisServer, sitOutMs: number): Promise<RedisTarget> {
  const copy: Copy = { make: () => server.copy(), restore: () => server.restore(), sitOutMs }
  return { ...(await startTarget(name, server, { copy })), server }
}

/** The addresses lead to the spare server; the one that was there is emptied, goes on running, and is the next spare. */
async function replace(target: RedisTarget, spare: { server: RedisServer }): Promise<void> {
  const { server: old, ways } = target
  for (const way of ways) way.aim(spare.server.port)
  for (const way of ways) way.reset()
  target.server = spare.server
  spare.server = old
  await old.cli('FLUSHALL')
  await old.cli('SCRIPT', 'FLUSH')
}

/** The locks on a server. */
export async function keysOn(name: string, server: RedisServer): Promise<string[]> {
  const keys = (await server.cli('KEYS', '*')).split('\n')
  // Counters stay, and the mark of a node that was let in.
  return keys
    .filter((key) => key !== '' && !key.startsWith('ringfence:fence:') && key !== 'ringfence:stamp')
    .map((key) => `${name}: ${key}`)
}
