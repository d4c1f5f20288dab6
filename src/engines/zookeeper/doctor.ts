import type { Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import type { Acl } from './driver.ts'
import { checkServers, type ServerPlan } from './doctor-servers.ts'
import type { Seat } from './seat.ts'

export interface CheckPlan extends ServerPlan {
  readonly root: string
  readonly ttlMs: number
  readonly maxTtlMs: number
}

/** Permission bits: write, create, delete. Whoever has one of them can take a lease away or make one up. */
const CHANGING = 2 | 4 | 8
/** A write that takes more than this part of the ttl leaves little time for a renewal that fails and is made again. */
const SLOW_PART = 0.1
/** So many folders are looked at. */
const MOST_FOLDERS = 1000

/** The doctor: are these servers fit to hold locks of such a ttl? Changes nothing on them. */
export async function checkZookeeper(seat: Seat | EngineError, plan: CheckPlan): Promise<readonly Finding[]> {
  const servers = checkServers(plan, seat instanceof EngineError ? undefined : seat.session.timeoutMs)
  if (seat instanceof EngineError) {
    const connection: Finding = {
      id: 'zookeeper/session',
      severity: 'critical',
      found: `no session: ${seat.message}`,
      meaning: 'Nobody here gets or keeps a lease.',
      remedy: seat.transient
        ? 'Bring a majority of the servers up.'
        : 'Correct the connection string or the credentials.',
    }
    return [connection, ...(await servers)]
  }
  const own = [
    session(seat, plan),
    await told('zookeeper/acl', () => access(seat, plan)),
    await told('zookeeper/round-trip', () => roundTrip(seat, plan)),
    await told('zookeeper/empty-folders', () => emptyFolders(seat, plan)),
  ]
  return [...own, ...(await servers)]
}

async function told(id: string, look: () => Promise<Finding>): Promise<Finding> {
  try {
    return await look()
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    return { id, severity: 'warning', found: `could not be found out: ${message}`, meaning: 'Nothing is known of it.' }
  }
}

function session({ session: { timeoutMs } }: Seat, { ttlMs, maxTtlMs }: CheckPlan): Finding {
  const id = 'zookeeper/session'
  const found = `sessions of ${timeoutMs} ms are granted, where ${2 * maxTtlMs} ms were asked for (twice maxTtl)`
  if (timeoutMs < 2 * ttlMs) {
    return {
      id,
      severity: 'critical',
      found,
      meaning: `A ttl of ${ttlMs} ms needs a session of ${2 * ttlMs} ms, so such leases are refused.`,
      remedy: 'Raise maxSessionTimeout on the servers (default: 20 ticks), or use a shorter ttl.',
    }
  }
  if (timeoutMs < 2 * maxTtlMs) {
    return {
      id,
      severity: 'warning',
      found,
      meaning: `Leases of more than ${Math.floor(timeoutMs / 2)} ms are refused, although maxTtl allows for them.`,
      remedy: 'Raise maxSessionTimeout on the servers (default: 20 ticks), or lower maxTtl.',
    }
  }
  if (timeoutMs > 2 * maxTtlMs) {
    return {
      id,
      severity: 'note',
      found,
      meaning: `The leases of a process that dies end after up to ${timeoutMs} ms, later than maxTtl would have it.`,
      remedy: 'Lower minSessionTimeout on the servers (default: 2 ticks) if that is too late.',
    }
  }
  return { id, severity: 'ok', found, meaning: `The leases of a process that dies end within about ${timeoutMs} ms.` }
}

async function access({ session }: Seat, { root, withinMs }: CheckPlan): Promise<Finding> {
  const id = 'zookeeper/acl'
  const [rules] = await session.ask<[acl: readonly Acl[]]>(withinMs, (client, done) => client.getACL(root, done))
  const open = rules.filter(({ permission, id }) => id.scheme === 'world' && (permission & CHANGING) !== 0)
  if (open.length === 0) {
    const who = rules.map(({ id }) => `${id.scheme}:${id.scheme === 'digest' ? id.id.split(':')[0] : id.id}`)
    return {
      id,
      severity: 'ok',
      found: `${root} belongs to ${who.join(', ')}`,
      meaning: 'Others can not touch leases.',
    }
  }
  return {
    id,
    severity: 'warning',
    found: `${root} is open to the world`,
    meaning: 'Everyone who can connect to the servers can remove a lease, or hold one for ever.',
    remedy:
      "Give credentials, zookeeper(driver, servers, { auth: { scheme: 'digest', auth: 'user:password' } }), and a new path.",
  }
}

async function roundTrip({ line }: Seat, { ttlMs, withinMs, clock }: CheckPlan): Promise<Finding> {
  const took = await timed(clock, () => line.settle(withinMs))
  const found = `a write takes ${took.toFixed(1)} ms`
  if (took <= ttlMs * SLOW_PART) {
    return { id: 'zookeeper/round-trip', severity: 'ok', found, meaning: `That is little of a ttl of ${ttlMs} ms.` }
  }
  return {
    id: 'zookeeper/round-trip',
    severity: 'warning',
    found,
    meaning: `Of a ttl of ${ttlMs} ms that is much: leases are lost when a renewal has to be made again.`,
    remedy: 'Use a longer ttl, or give the servers a disk of their own for the transaction log (dataLogDir).',
  }
}

async function emptyFolders({ line }: Seat, { root, withinMs }: CheckPlan): Promise<Finding> {
  const names = (await line.folders(withinMs)).slice(0, MOST_FOLDERS)
  const count = (await line.empty(names, withinMs)).length
  const id = 'zookeeper/empty-folders'
  const found = `${count} empty folders in ${root}`
  if (count === 0) return { id, severity: 'ok', found, meaning: 'Nothing was left behind by processes that died.' }
  return {
    id,
    severity: 'note',
    found,
    meaning:
      'Processes died there. They take some memory and no harm is done; the next use of a name removes its folder.',
    remedy: 'init() of the engine removes them all.',
  }
}

async function timed(clock: Clock, run: () => Promise<unknown>): Promise<number> {
  const began = clock.monotonicMs()
  await run()
  return clock.monotonicMs() - began
}
