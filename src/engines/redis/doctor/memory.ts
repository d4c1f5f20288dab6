import type { Finding } from '../../../engine.ts'
import type { Findings } from '../../shared/findings.ts'
import { unknown, type ServerFacts } from './facts.ts'

/** Above this part of maxmemory an ordinary peak fills the rest. */
const NEARLY_FULL = 0.9

const NO_EVICTION = 'CONFIG SET maxmemory-policy noeviction, and maxmemory-policy noeviction in its configuration file'

/** Does the server throw leases or counters away, or refuse new ones, for lack of memory? */
export function checkMemory(report: Findings, facts: ServerFacts): readonly Finding[] {
  const policy = facts.info('maxmemory_policy')
  const limit = facts.number('maxmemory')
  if (policy === undefined || limit === undefined) {
    return [unknown(report, 'eviction-policy', 'what it does when memory is full', facts.infoRefused, '+info')]
  }
  return [
    evictionPolicy(report, policy, limit),
    ...evicted(report, facts, policy),
    ...fullness(report, facts, policy, limit),
  ]
}

function evictionPolicy({ ok, note, critical }: Findings, policy: string, limit: number): Finding {
  const id = 'eviction-policy'
  const found = `The maxmemory-policy is ${policy}, and maxmemory is ${limit === 0 ? '0 (no limit)' : bytes(limit)}.`
  if (policy === 'noeviction') {
    if (limit === 0) return ok(id, found, 'Nothing is evicted.')
    const meaning =
      'Nothing is evicted. When memory is full, writes are refused instead, and no lease is granted until there is room.'
    return note(id, found, meaning, 'Watch used_memory, and keep caches on another server.')
  }
  const victims = policy.startsWith('volatile-')
    ? `${policy} evicts only keys with a time to live: that is exactly the leases and their fencing counters`
    : `${policy} evicts any key, leases and their fencing counters among them`
  if (limit === 0)
    return note(id, found, `Without a limit nothing is evicted; with one, ${victims}.`, `${NO_EVICTION}.`)
  return critical(
    id,
    found,
    `When memory is full, ${victims}. A lease that was evicted is granted to the next client that asks: two holders.`,
    `${NO_EVICTION}. Keep caches on another server.`,
  )
}

function evicted({ ok, warning, critical }: Findings, facts: ServerFacts, policy: string): readonly Finding[] {
  const count = facts.number('evicted_keys')
  if (count === undefined) return []
  const id = 'evicted-keys'
  const found = `The server has evicted ${count} keys since it started (or since CONFIG RESETSTAT).`
  if (count === 0) return [ok(id, found, 'No lease was lost this way so far.')]
  return policy === 'noeviction'
    ? [
        warning(
          id,
          found,
          'Leases may have been among them. The present policy evicts no more keys.',
          'Nothing more is to be done; CONFIG RESETSTAT sets the count back.',
        ),
      ]
    : [critical(id, found, 'Leases may have been among them, and the server goes on evicting.', `${NO_EVICTION}.`)]
}

function fullness(report: Findings, facts: ServerFacts, policy: string, limit: number): readonly Finding[] {
  const used = facts.number('used_memory')
  if (limit === 0 || used === undefined) return []
  const id = 'memory'
  const part = used / limit
  const found = `The server uses ${bytes(used)} of ${bytes(limit)} (${Math.round(part * 100)} %).`
  if (part < NEARLY_FULL) return [report.ok(id, found, 'There is room for more leases.')]
  const refuses = policy === 'noeviction'
  const severe = part >= 1 && refuses ? report.critical : report.warning
  const meaning = refuses
    ? 'When it is full, acquiring is refused with OOM. Leases that are held are still renewed and released.'
    : 'Eviction is about to begin, or has begun.'
  return [severe(id, found, meaning, 'Raise maxmemory (CONFIG SET maxmemory ...), or move other data away.')]
}

function bytes(count: number): string {
  const [size, unit] = count >= 2 ** 30 ? [2 ** 30, 'GiB'] : count >= 2 ** 20 ? [2 ** 20, 'MiB'] : [2 ** 10, 'KiB']
  return `${(count / size).toFixed(1)} ${unit}`
}
