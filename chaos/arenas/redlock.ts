import { startRedis } from '../../test/support/servers/redis.ts'
import { hasEngine } from '../../test/support/engines.ts'
import { startGroup } from '../../test/support/group.ts'
import { portsOf, startTarget, stopTargets, type Arena } from '../arena.ts'

const TTL_MS = 1500
/**
 * A node that forgot its counters sits out for this long. It must be longer than the leases, and for the order of tokens
 * longer than 4 s and what the nodes' clocks differ by (docs/guarantees.md): that is what the jumps are bounded by.
 */
const MAX_TTL_MS = 8000
/** Beyond every lease, so that a jump ahead ends those of its node. */
const JUMP_MS = 3000
/** Redis counts its uptime in whole seconds. */
const UPTIME_GRAIN_MS = 1000

/** Five Redis servers: two that keep every write, three that forget all when they crash. */
export async function redlockArena(): Promise<Arena> {
  const clockShift = hasEngine('clock-shift')
  const starts = [true, true, false, false, false].map((durable) => () => startRedis({ durable, clockShift }))
  const { nodes } = await startGroup(starts)
  const targets = await Promise.all(
    nodes.map((node, index) =>
      startTarget(`redis-${index + 1}`, node, {
        ...(index < 2 ? {} : { memory: 'lost' as const, sitOutMs: MAX_TTL_MS + 2 * UPTIME_GRAIN_MS }),
        ...(clockShift ? { clock: { shift: (ms: number) => node.shiftClock(ms), jumpMs: JUMP_MS } } : {}),
      }),
    ),
  )
  return {
    connector: 'redlock',
    targets,
    majority: 3,
    ttlMs: TTL_MS,
    settleMs: TTL_MS + 1000,
    mostGapMs: 15_000,
    // A key that was set while its node's clock was ahead lasts longer by that.
    clearMs: TTL_MS + JUMP_MS + 1000,
    env: (client) => ({
      RINGFENCE_PORTS: portsOf(targets, client).join(','),
      RINGFENCE_DRIVER: client % 3 === 0 ? 'node-redis' : 'ioredis',
      RINGFENCE_REDLOCK_OPTIONS: JSON.stringify({ maxTtl: MAX_TTL_MS }),
    }),
    leftovers: async () => {
      const keys = await Promise.all(nodes.map((node) => node.cli('KEYS', '*')))
      return keys.flatMap((text, index) =>
        text
          .split('\n')
          // Counters stay, and the mark of a node that was let in.
          .filter((key) => key !== '' && !key.startsWith('ringfence:fence:') && key !== 'ringfence:stamp')
          .map((key) => `${targets[index]!.name}: ${key}`),
      )
    },
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}
