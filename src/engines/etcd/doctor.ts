import type { Clock } from '../../clock.ts'
import type { Engine, Finding } from '../../engine.ts'
import type { Random } from '../../random.ts'
import { checkRoundTrip, checkSize, tryLease } from '../http/doctor.ts'
import { reasonOf } from '../http/endpoints.ts'
import { headerOf, isDenied, within, type Gateway, type Json } from './gateway.ts'
import { leaseIdOf, secondsOf, type Keys } from './keys.ts'
import type { EtcdLeases } from './leases.ts'

export interface CheckPlan {
  readonly gateway: Gateway
  readonly leases: EtcdLeases
  readonly keys: Keys
  readonly clock: Clock
  readonly random: Random
  readonly loggedIn: boolean
  readonly timeoutMs: number
}

interface Member {
  readonly url: string
  readonly memberId: string
  readonly clusterId: string
  readonly version: string
  readonly hasLeader: boolean
  readonly learner: boolean
}

/** Is this cluster fit to hold locks of such a ttl? Asks every endpoint, and takes a lease on a name of its own to see. */
export async function checkEtcd(engine: Engine, plan: CheckPlan, ttlMs: number): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  const members: Member[] = []
  const { urls } = plan.gateway.endpoints
  await Promise.all(
    urls.map(async (url) => {
      try {
        members.push(await statusOf(plan, url))
        findings.push({
          id: 'etcd/reachable',
          severity: 'ok',
          node: url,
          found: 'answers',
          meaning: 'It can be asked.',
        })
      } catch (error) {
        findings.push(unreachable(url, reasonOf(error), urls.length))
      }
    }),
  )
  if (members.length === 0) return findings
  findings.push(...checkMembers(members), ...members.flatMap(checkMember))
  if (!members.some(({ hasLeader }) => hasLeader)) return findings
  findings.push(...(await checkTogether(plan, members)), ...(await checkLease(engine, plan, ttlMs)))
  return findings
}

async function statusOf({ gateway, timeoutMs }: CheckPlan, url: string): Promise<Member> {
  const status = await gateway.ask(url, 'maintenance/status', {}, timeoutMs)
  const { memberId, clusterId } = headerOf(status)
  return {
    url,
    memberId,
    clusterId,
    version: String(status['version']),
    hasLeader: status['leader'] !== undefined && status['leader'] !== '0',
    learner: status['isLearner'] === true,
  }
}

function unreachable(url: string, why: string, of: number): Finding {
  return {
    id: 'etcd/reachable',
    severity: of === 1 ? 'critical' : 'warning',
    node: url,
    found: why,
    meaning: of === 1 ? 'No lease can be granted or renewed.' : 'The others are asked instead; one less may fail.',
    remedy: 'See whether it runs, and whether URL, TLS and firewall let this machine in.',
  }
}

function checkMember({ url, version, hasLeader, learner }: Member): Finding[] {
  const findings: Finding[] = []
  if (!hasLeader) {
    findings.push({
      id: 'etcd/leader',
      severity: 'critical',
      node: url,
      found: 'knows no leader',
      meaning: 'It is cut off from a majority of the members: through it, no lease can be granted or renewed.',
      remedy: 'Bring a majority of the members back, or repair the network between them.',
    })
  }
  if (learner) {
    findings.push({
      id: 'etcd/learner',
      severity: 'warning',
      node: url,
      found: 'is a learner, not a voting member',
      meaning: 'It refuses to serve; every request that reaches it first costs a detour.',
      remedy: 'Promote it, or leave it out of the endpoints.',
    })
  }
  if (endsLeasesEarly(version)) {
    findings.push({
      id: 'etcd/version',
      severity: 'warning',
      node: url,
      found: `version ${version}`,
      meaning:
        'Before 3.4.31 and 3.5.13, a leader that was stalled and replaced can end leases that the new leader has renewed: ' +
        'a second holder, with a greater token.',
      remedy: 'Upgrade, and check tokens at the store.',
    })
  }
  return findings
}

/** etcd's issue 15247. */
export function endsLeasesEarly(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split(/[.-]/).map(Number)
  if (major !== 3 || minor > 5) return major < 3
  return minor < 4 || patch < (minor === 4 ? 31 : 13)
}

function checkMembers(members: readonly Member[]): Finding[] {
  const clusters = new Set(members.map(({ clusterId }) => clusterId))
  if (clusters.size === 1) return []
  return [
    {
      id: 'etcd/cluster',
      severity: 'critical',
      found: `the endpoints belong to ${clusters.size} clusters`,
      meaning: 'Each grants leases on its own: two holders at once, whose tokens can not be compared.',
      remedy: 'Give the endpoints of one cluster.',
    },
  ]
}

/** What only the cluster as a whole can tell. */
async function checkTogether({ gateway, timeoutMs }: CheckPlan, asked: readonly Member[]): Promise<Finding[]> {
  const findings: Finding[] = []
  try {
    const list = (await gateway.call('cluster/member/list', {}, timeoutMs))['members'] as readonly Json[]
    const voters = list.filter((member) => member['isLearner'] !== true)
    findings.push(checkSize('etcd/members', voters.length, 'voting member'))
    const ids = new Set(asked.map(({ memberId }) => memberId))
    const others = voters.filter((member) => !ids.has(String(member['ID'])))
    if (others.length > 0) {
      findings.push({
        id: 'etcd/endpoints',
        severity: 'note',
        found: `of ${voters.length} members, ${others.length} could not be asked: ${others.map(nameOf).join(', ')}`,
        meaning: 'They are not among the endpoints, or do not answer; requests can not turn to them.',
        remedy: 'Give the URLs of all members.',
      })
    }
    const alarms = ((await gateway.call('maintenance/alarm', { action: 'GET' }, timeoutMs))['alarms'] ?? []) as Json[]
    for (const { alarm } of alarms) findings.push(checkAlarm(String(alarm)))
  } catch (error) {
    findings.push({
      id: 'etcd/members',
      severity: 'note',
      found: `could not be asked for: ${reasonOf(error)}`,
      meaning: 'How many members there are, and whether an alarm is raised, was not checked.',
    })
  }
  return findings
}

function nameOf({ name, ID: id }: Json): string {
  return typeof name === 'string' && name !== '' ? name : `member ${String(id)} (not started)`
}

function checkAlarm(alarm: string): Finding {
  const full = alarm === 'NOSPACE'
  return {
    id: 'etcd/alarm',
    severity: 'critical',
    found: `the alarm ${alarm} is raised`,
    meaning: full
      ? 'The database is full: nothing can be written, so no lease can be granted.'
      : 'The members disagree about the data: two of them could name two holders.',
    remedy: full
      ? 'Compact and defragment it, or raise the quota; then disarm the alarm with `etcdctl alarm disarm`.'
      : 'Replace the corrupt member.',
  }
}

/** A lease is taken and given back; what that shows depends on the ttl. */
async function checkLease(engine: Engine, plan: CheckPlan, ttlMs: number): Promise<Finding[]> {
  const { gateway, leases, keys, random, clock, timeoutMs } = plan
  try {
    const failure = await tryLease(engine, ttlMs, random)
    if (failure !== undefined) return [noLease(failure)]
    const read = (): Promise<unknown> => gateway.read([within(keys.folder('check'))], timeoutMs)
    const id = leaseIdOf(random.id(), 1)
    const { TTL: shortest } = await gateway.call('lease/grant', { ID: id, TTL: '1' }, timeoutMs)
    await leases.revoke(id, timeoutMs)
    return [
      {
        id: 'etcd/lease',
        severity: 'ok',
        found: 'a lease could be taken and given back',
        meaning: plan.loggedIn ? 'The login may do what is needed.' : 'No login is needed.',
      },
      await checkRoundTrip('etcd/round-trip', read, { clock, ttlMs, timeoutMs }),
      ...checkShortest(Number(shortest), ttlMs),
    ]
  } catch (error) {
    return [noLease(error)]
  }
}

function noLease(error: unknown): Finding {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const denied = isDenied(cause)
  return {
    id: denied ? 'etcd/permission' : 'etcd/lease',
    severity: 'critical',
    found: reasonOf(error),
    meaning: 'No lease could be taken.',
    remedy: denied
      ? 'Give username and password of a user whose role may read and write all keys with the prefix.'
      : 'See what the members log, and run this again.',
  }
}

function checkShortest(shortest: number, ttlMs: number): Finding[] {
  if (shortest <= secondsOf(ttlMs)) return []
  return [
    {
      id: 'etcd/shortest-lease',
      severity: 'note',
      found: `the members keep every lease for at least ${shortest} s; the ttl is ${ttlMs} ms`,
      meaning: 'A holder that dies is in the way for that long. Nothing is unsafe about it.',
      remedy: 'A shorter --election-timeout makes it shorter.',
    },
  ]
}
