import type { Send } from '../client.ts'
import { resourceKeys, STAMP_KEY } from '../keys.ts'

/**
 * A server that starts replays its append-only file as the user `default`, by the rights that its configuration or ACL file gives it. Redis 7
 * and Valkey 8 leave out every transaction that this user has no right to, and a script with several writes is one: then leases are
 * forgotten in spite of `appendfsync always`, and after a rewrite of the file the stamp is not.
 */
export type Replay =
  /** Nothing was left out at its last start, and nothing will be at the next one. */
  | 'whole'
  /** Something was left out at its last start. */
  | 'left out'
  /** `default` has no right to what scripts write. */
  | 'no rights'
  /** Rights were changed in this run, so those of the next start may be others; or the count of such changes was reset. */
  | 'changed'
  /** The server does not say, or not to this user. */
  | 'not told'

/** Names of resources that no pattern fits by chance which was written for others. */
const NAMES = ['~ringfence', '0^{never-locked}']

/** What scripts write of a lease, as it stands in the append-only file. */
function writes(prefix: string): string[][] {
  const all = NAMES.map((name) => resourceKeys(prefix, name))
  const [{ lock, fence, line, readers }] = all as [(typeof all)[0]]
  return [
    ...all.flatMap((keys) => [keys.lock, keys.fence].map((key) => ['SET', key, '1', 'PXAT', '1'])),
    ['PEXPIREAT', readers, '1'],
    ['ZADD', readers, '1', '1'],
    ['ZREM', line, '1'],
    ['DEL', lock, fence],
    // Of a key whose time is over.
    ['UNLINK', lock, readers],
    ['HSET', STAMP_KEY, '1', '1'],
    ['DEL', STAMP_KEY],
    ['SELECT', '0'],
  ]
}

/**
 * `prefix`: of the lock keys. Whether the server has what was written before it started can be told by what it counts: errors while it
 * replayed. Whether it will have what is written now, by the rights of `default`, if these are still those that it has started with.
 */
export async function replayOf(ask: Send, prefix: string): Promise<Replay> {
  const dryRuns = writes(prefix).map((write) => ask(['ACL', 'DRYRUN', 'default', ...write]).catch(() => undefined))
  // Behind them: a change before the last of them is counted.
  const sections = ['stats', 'commandstats'].map((section) => ask(['INFO', section]).catch(() => undefined))
  const answers = await Promise.all(dryRuns)
  const [stats, commands] = (await Promise.all(sections)).map(String) as [string, string]
  const errors = /^unexpected_error_replies:(\d+)/m.exec(stats)?.[1]
  if (errors !== undefined && errors !== '0') return 'left out'
  if (answers.some((answer) => answer !== undefined && answer !== 'OK')) return 'no rights'
  if (errors === undefined || !commands.startsWith('# Commandstats') || answers.includes(undefined)) return 'not told'
  return /^cmdstat_(acl\|(setuser|load)|config\|resetstat):/m.test(commands) ? 'changed' : 'whole'
}
