import { STAMP_KEY } from '../keys.ts'

/** What scripts write of a lease, as it stands in the append-only file. */
const WRITES = [
  ['SET', 'lock', 'owner'],
  ['PEXPIREAT', 'lock', '1'],
  ['ZADD', 'lock', '1', 'owner'],
  ['HSET', STAMP_KEY, 'field', 'value'],
]

/**
 * A server that starts replays its append-only file as the user `default`. Redis 7 and Valkey 8 leave out every transaction that this user
 * has no right to, and a script with several writes is one: then leases are forgotten in spite of `appendfsync always`, and after a
 * rewrite of the file the stamp is not. Undefined if this user may not ask.
 */
export async function replaysAll(run: (command: readonly string[]) => Promise<unknown>): Promise<boolean | undefined> {
  const who = await run(['ACL', 'WHOAMI']).catch(asText)
  if (who === 'default') return true
  // Before version 6 nobody has rights. Later the command may have been renamed, and then nobody can ask.
  if (/unknown command/i.test(String(who))) return (await majorVersion(run)) < 6 || undefined
  const answers = await Promise.all(
    WRITES.map((write) => run(['ACL', 'DRYRUN', 'default', ...write]).catch(() => undefined)),
  )
  if (answers.includes(undefined)) return undefined
  return answers.every((answer) => answer === 'OK')
}

function asText(error: unknown): string {
  return String(error)
}

async function majorVersion(run: (command: readonly string[]) => Promise<unknown>): Promise<number> {
  const info = await run(['INFO', 'server']).catch(asText)
  return Number(/redis_version:(\d+)/.exec(String(info))?.[1])
}
