import type { Finding } from '../../../engine.ts'
import { EngineError, messageOf } from '../../../errors.ts'
import { findings, sentence } from '../../shared/findings.ts'
import { checkRoundTrip, timeTrips } from '../../shared/round-trip.ts'
import type { ZookeeperAcl } from '../client.ts'
import type { SessionScope } from '../session-scope.ts'
import { checkServers, type ServerPlan } from './servers.ts'

export interface ZookeeperCheckPlan extends ServerPlan {
  readonly root: string
  readonly ttlMs: number
  readonly maxTtlMs: number
}

/** Permission bits: write, create, delete. With any one of them, a client can take a lease away or make one up. */
const CHANGING = 2 | 4 | 8
/** The doctor looks at this many folders at most. */
const MOST_FOLDERS = 1000

const { ok, note, warning, critical } = findings('zookeeper')

/** The doctor: are these servers fit to hold locks of such a ttl? Changes nothing on them. */
export async function checkZookeeper(
  scope: SessionScope | EngineError,
  plan: ZookeeperCheckPlan,
): Promise<readonly Finding[]> {
  const servers = checkServers(plan, scope instanceof EngineError ? undefined : scope.session.timeoutMs)
  if (scope instanceof EngineError) return [noSession(scope), ...(await servers)]
  const own = [
    checkSession(scope, plan),
    await orUnknown('acl', () => checkAccess(scope, plan)),
    await orUnknown('round-trip', () => checkWrites(scope, plan)),
    await orUnknown('empty-folders', () => checkFolders(scope, plan)),
  ]
  return [...own, ...(await servers)]
}

function noSession({ message, transient }: EngineError): Finding {
  const remedy = transient ? 'Bring a majority of the servers up.' : 'Correct the connection string or the credentials.'
  const found = sentence(`There is no session: ${message}`)
  return critical('session', found, 'No lease can be granted or renewed.', remedy)
}

async function orUnknown(id: string, check: () => Promise<Finding>): Promise<Finding> {
  try {
    return await check()
  } catch (error) {
    return warning(id, sentence(`The server did not tell: ${messageOf(error)}`), 'This was not checked.')
  }
}

function checkSession({ session: { timeoutMs } }: SessionScope, { ttlMs, maxTtlMs }: ZookeeperCheckPlan): Finding {
  const found = `The servers grant sessions of ${timeoutMs} ms; the engine asks for ${2 * maxTtlMs} ms (twice maxTtl).`
  if (timeoutMs < 2 * ttlMs) {
    const meaning = `A ttl of ${ttlMs} ms needs a session of ${2 * ttlMs} ms, so such leases are refused.`
    const remedy = 'Raise maxSessionTimeout on the servers (default: 20 ticks), or use a shorter ttl.'
    return critical('session', found, meaning, remedy)
  }
  if (timeoutMs < 2 * maxTtlMs) {
    const meaning = `Leases of more than ${Math.floor(timeoutMs / 2)} ms are refused, although maxTtl allows for them.`
    const remedy = 'Raise maxSessionTimeout on the servers (default: 20 ticks), or lower maxTtl.'
    return warning('session', found, meaning, remedy)
  }
  if (timeoutMs > 2 * maxTtlMs) {
    const meaning = `The leases of a process that dies end after up to ${timeoutMs} ms, later than maxTtl says.`
    const remedy = 'Lower minSessionTimeout on the servers (default: 2 ticks) if that is too late.'
    return note('session', found, meaning, remedy)
  }
  return ok('session', found, `The leases of a process that dies end within about ${timeoutMs} ms.`)
}

async function checkAccess({ session }: SessionScope, { root, withinMs }: ZookeeperCheckPlan): Promise<Finding> {
  const [rules] = await session.ask<[acl: readonly ZookeeperAcl[]]>(withinMs, (client, done) =>
    client.getACL(root, done),
  )
  const open = rules.filter(({ permission, id }) => id.scheme === 'world' && (permission & CHANGING) !== 0)
  if (open.length === 0) {
    const who = rules.map(({ id }) => `${id.scheme}:${id.scheme === 'digest' ? id.id.split(':')[0] : id.id}`)
    return ok('acl', `${root} belongs to ${who.join(', ')}.`, 'Nobody else can change leases.')
  }
  return warning(
    'acl',
    `${root} is open to the world.`,
    'Everyone who can connect to the servers can remove a lease, or hold one forever.',
    "Give credentials, zookeeper(driver, servers, { auth: { scheme: 'digest', auth: 'user:password' } }), and a new path.",
  )
}

/** A write that takes more than a tenth of the ttl leaves little time for a renewal that fails and is repeated. */
async function checkWrites({ steps }: SessionScope, plan: ZookeeperCheckPlan): Promise<Finding> {
  const { ttlMs, withinMs, clock } = plan
  return checkRoundTrip(findings('zookeeper'), await timeTrips(clock, () => steps.settle(withinMs)), {
    ttlMs,
    slowMs: ttlMs / 10,
    meaning: `A renewal is a write. Of a ttl of ${ttlMs} ms that is much: leases are lost when a renewal has to be repeated.`,
    ttlPerTrip: 10,
    remedy: 'give the servers a disk of their own for the transaction log (dataLogDir)',
  })
}

async function checkFolders({ steps }: SessionScope, { root, withinMs }: ZookeeperCheckPlan): Promise<Finding> {
  const names = (await steps.folders(withinMs)).slice(0, MOST_FOLDERS)
  const count = (await steps.empty(names, withinMs)).length
  if (count === 0) {
    return ok('empty-folders', `${root} has no empty folders.`, 'Processes that died have left nothing behind.')
  }
  const found = `${root} has ${count} empty folder${count === 1 ? '' : 's'}.`
  const meaning =
    'Processes that died have left them. They take some memory, and the next use of a name removes its folder.'
  return note('empty-folders', found, meaning, 'init() of the engine removes them all.')
}
