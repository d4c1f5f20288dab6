import { unknown, type Facts } from './facts.ts'
import type { Diagnosis } from './patient.ts'

/** Above this part of maxmemory an ordinary peak fills the rest. */
const NEARLY_FULL = 0.9

const NO_EVICTION = 'CONFIG SET maxmemory-policy noeviction, and maxmemory-policy noeviction in its configuration file'

/** Does the server throw leases or counters away, or refuse new ones, for lack of memory? */
export function checkMemory(facts: Facts): readonly Diagnosis[] {
  const policy = facts.info('maxmemory_policy')
  const limit = facts.number('maxmemory')
  if (policy === undefined || limit === undefined) {
    const permission = '+info'
    return [unknown('redis/eviction-policy', 'what it does when memory is full', facts.infoRefused, permission)]
  }
  return [evictionPolicy(policy, limit), ...evicted(facts, policy), ...fullness(facts, policy, limit)]
}

function evictionPolicy(policy: string, limit: number): Diagnosis {
  const id = 'redis/eviction-policy'
  const found = `maxmemory-policy ${policy}, maxmemory ${limit === 0 ? '0 (no limit)' : bytes(limit)}`
  if (policy === 'noeviction') {
    if (limit === 0) return { id, severity: 'ok', found, meaning: 'Nothing is evicted.' }
    const meaning =
      'Nothing is evicted; when memory is full, writes are refused instead, and no lease is granted until there is room.'
    return { id, severity: 'note', found, meaning, remedy: 'Watch used_memory, and keep caches on another server.' }
  }
  const victims = policy.startsWith('volatile-')
    ? `${policy} evicts only keys with a time to live: that is exactly the leases and their fencing counters`
    : `${policy} evicts any key, leases and their fencing counters among them`
  if (limit === 0) {
    const meaning = `Without a limit nothing is evicted; with one, ${victims}.`
    return { id, severity: 'note', found, meaning, remedy: `${NO_EVICTION}.` }
  }
  return {
    id,
    severity: 'critical',
    found,
    meaning: `When memory is full, ${victims}. A lease that was evicted is granted to the next one who asks: two holders.`,
    remedy: `${NO_EVICTION}. Keep caches on another server.`,
  }
}

function evicted(facts: Facts, policy: string): readonly Diagnosis[] {
  const count = facts.number('evicted_keys')
  if (count === undefined) return []
  const id = 'redis/evicted-keys'
  const found = `${count} keys evicted since it started (or since CONFIG RESETSTAT)`
  if (count === 0) return [{ id, severity: 'ok', found, meaning: 'No lease was lost this way so far.' }]
  const still = policy !== 'noeviction'
  const meaning = `Leases may have been among them${still ? ', and it goes on' : '; the present policy evicts no more'}.`
  return [{ id, severity: still ? 'critical' : 'warning', found, meaning, remedy: still ? `${NO_EVICTION}.` : RESET }]
}

const RESET = 'Nothing more; CONFIG RESETSTAT sets the count back.'

function fullness(facts: Facts, policy: string, limit: number): readonly Diagnosis[] {
  const used = facts.number('used_memory')
  if (limit === 0 || used === undefined) return []
  const id = 'redis/memory'
  const part = used / limit
  const found = `${bytes(used)} of ${bytes(limit)} used (${Math.round(part * 100)} %)`
  if (part < NEARLY_FULL) return [{ id, severity: 'ok', found, meaning: 'There is room for more leases.' }]
  const refuses = policy === 'noeviction'
  return [
    {
      id,
      severity: part >= 1 && refuses ? 'critical' : 'warning',
      found,
      meaning: refuses
        ? 'When it is full, acquiring and renewing are refused with OOM: leases run out while their holders still work.'
        : 'Eviction is about to begin, or has begun.',
      remedy: 'Raise it (CONFIG SET maxmemory ...), or move other data away.',
    },
  ]
}

function bytes(count: number): string {
  const [size, unit] = count >= 2 ** 30 ? [2 ** 30, 'GiB'] : count >= 2 ** 20 ? [2 ** 20, 'MiB'] : [2 ** 10, 'KiB']
  return `${(count / size).toFixed(1)} ${unit}`
}
