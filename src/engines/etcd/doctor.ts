import type { Engine, Finding, NodeState } from '../../engine.ts'
import { findings, sentence } from '../shared/findings.ts'
import { askServers, checkLease, checkSize } from '../shared/http/doctor.ts'
import { reasonOf } from '../shared/http/endpoints.ts'
import { probed } from '../shared/probe.ts'
import { text } from '../shared/shape.ts'
import { headerOf, rangeFields, type EtcdJson } from './client.ts'
import type { EtcdCall } from './engine.ts'
import { CODE, isCode } from './errors.ts'
import { leaseIdOf, secondsOf } from './keys.ts'

interface EtcdMember {
  readonly url: string
  readonly memberId: string
  readonly clusterId: string
  readonly version: string
  readonly hasLeader: boolean
  readonly isLearner: boolean
}

const report = findings('etcd')

/** Is this cluster fit to hold locks of such a ttl? Asks every endpoint, and takes a lease on a name of its own. */
export async function checkEtcd(engine: Engine, call: EtcdCall, ttlMs: number): Promise<readonly Finding[]> {
  const { client, keys, loggedIn, timeoutMs } = call
  const { answers: members, reached } = await askServers('etcd', client.endpoints.urls, (url) => statusOf(call, url))
  const known = [...reached, ...checkCluster(members), ...members.flatMap(checkMember)]
  if (!members.some(({ hasLeader }) => hasLeader)) return known
  const ofMembers = await checkMembers(call, members)
  const lease = await checkLease(report, engine, {
    ...call,
    ttlMs,
    meaning: loggedIn ? 'The user has the permissions that are needed.' : 'No login is needed.',
    read: () => client.read([rangeFields(keys.folder('check'))], timeoutMs),
    more: () => checkShortestLease(call, ttlMs),
    refused: (cause) =>
      isCode(cause, CODE.invalidArgument, CODE.permissionDenied, CODE.unauthenticated)
        ? ['permission', 'Give username and password of a user whose role may read and write all keys with the prefix.']
        : ['lease', 'See what the members log, and run this again.'],
  })
  return [...known, ...ofMembers, ...lease]
}

/** How each member answers now. None of them tells its time. */
export function probeEtcd(call: EtcdCall): Promise<readonly NodeState[]> {
  const ask = async (url: string): Promise<undefined> => {
    const { hasLeader, isLearner } = await statusOf(call, url)
    if (!hasLeader) throw new Error('knows no leader')
    if (isLearner) throw new Error('is a learner, and serves nobody')
  }
  return Promise.all(call.client.endpoints.urls.map((url) => probed(url, call.clock, () => ask(url), reasonOf)))
}

async function statusOf({ client, timeoutMs }: EtcdCall, url: string): Promise<EtcdMember> {
  const status = await client.ask(url, 'maintenance/status', {}, timeoutMs)
  const { memberId, clusterId } = headerOf(status)
  return {
    url,
    memberId,
    clusterId,
    version: text(status, 'version') ?? 'unknown',
    hasLeader: status['leader'] !== undefined && status['leader'] !== '0',
    isLearner: status['isLearner'] === true,
  }
}

function checkMember({ url, version, hasLeader, isLearner }: EtcdMember): Finding[] {
  const { warning, critical } = findings('etcd', url)
  const found: Finding[] = []
  if (!hasLeader) {
    const meaning = 'It is cut off from a majority of the members. Through it, no lease can be granted or renewed.'
    const remedy = 'Bring a majority of the members back, or repair the network between them.'
    found.push(critical('leader', 'The member knows no leader.', meaning, remedy))
  }
  if (isLearner) {
    const meaning = 'It refuses to serve, and every request that reaches it first takes a detour.'
    const remedy = 'Promote it, or leave it out of the endpoints.'
    found.push(warning('learner', 'The member is a learner, not a voting member.', meaning, remedy))
  }
  if (endsLeasesEarly(version)) {
    const meaning =
      'Before 3.4.31 and 3.5.13, a leader that was stalled and replaced can end leases that the new leader has renewed: ' +
      'a second holder, with a greater token.'
    found.push(warning('version', `The version is ${version}.`, meaning, 'Upgrade, and check tokens at the store.'))
  }
  return found
}

/** etcd's issue 15247. */
export function endsLeasesEarly(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split(/[.-]/).map(Number)
  if (major !== 3 || minor > 5) return major < 3
  return minor < 4 || patch < (minor === 4 ? 31 : 13)
}

function checkCluster(members: readonly EtcdMember[]): Finding[] {
  const clusters = new Set(members.map(({ clusterId }) => clusterId))
  if (clusters.size <= 1) return []
  const found = `The endpoints belong to ${clusters.size} clusters.`
  const meaning = 'Each cluster grants leases on its own: two holders at once, whose tokens cannot be compared.'
  return [report.critical('cluster', found, meaning, 'Give the endpoints of one cluster.')]
}

/** What only the cluster as a whole knows: its members and its alarms. */
async function checkMembers({ client, timeoutMs }: EtcdCall, asked: readonly EtcdMember[]): Promise<Finding[]> {
  const found: Finding[] = []
  try {
    const list = (await client.call('cluster/member/list', {}, timeoutMs))['members'] as readonly EtcdJson[]
    const voters = list.filter((member) => member['isLearner'] !== true)
    found.push(checkSize(report, 'members', voters.length, 'voting member'))
    const ids = new Set(asked.map(({ memberId }) => memberId))
    const others = voters.filter((member) => !ids.has(text(member, 'ID') ?? ''))
    if (others.length > 0) {
      const names = others.map(nameOf).join(', ')
      found.push(
        report.note(
          'endpoints',
          `Of ${voters.length} members, ${others.length} could not be asked: ${names}.`,
          'They are not among the endpoints, or do not answer, so requests cannot turn to them.',
          'Give the URLs of all members.',
        ),
      )
    }
    const { alarms = [] } = await client.call('maintenance/alarm', { action: 'GET' }, timeoutMs)
    for (const { alarm } of alarms as EtcdJson[]) found.push(checkAlarm(text({ alarm }, 'alarm') ?? 'without a name'))
  } catch (error) {
    const meaning = 'How many members there are, and whether an alarm is raised, was not checked.'
    found.push(report.note('members', sentence(`The members could not be listed: ${reasonOf(error)}`), meaning))
  }
  return found
}

function nameOf({ name, ID: id }: EtcdJson): string {
  return typeof name === 'string' && name !== ''
    ? name
    : `member ${text({ id }, 'id') ?? 'without a number'} (not started)`
}

function checkAlarm(alarm: string): Finding {
  const found = `The alarm ${alarm} is raised.`
  if (alarm === 'NOSPACE') {
    const meaning = 'The database is full: nothing can be written, so no lease can be granted.'
    const remedy = 'Compact and defragment it, or raise the quota. Then disarm the alarm with `etcdctl alarm disarm`.'
    return report.critical('alarm', found, meaning, remedy)
  }
  const meaning = 'The members disagree about the data: two of them could name two holders.'
  return report.critical('alarm', found, meaning, 'Replace the corrupt member.')
}

/** Takes the shortest lease that there is. */
async function checkShortestLease({ client, steps, random, timeoutMs }: EtcdCall, ttlMs: number): Promise<Finding[]> {
  const id = leaseIdOf(random.id(), 1)
  const shortest = text(await client.call('lease/grant', { ID: id, TTL: '1' }, timeoutMs), 'TTL')
  await steps.revoke(id, timeoutMs)
  if (!(Number(shortest) > secondsOf(ttlMs))) return []
  const found = `The members keep every lease for at least ${shortest} s; the ttl is ${ttlMs} ms.`
  const meaning = 'A holder that dies blocks the others for that long. That is slow, but safe.'
  return [report.note('shortest-lease', found, meaning, 'A shorter --election-timeout makes it shorter.')]
}
