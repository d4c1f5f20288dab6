import type { Engine, Finding, NodeState } from '../../engine.ts'
import { findings, sentence } from '../shared/findings.ts'
import { askServers, checkLease, checkSize } from '../shared/http/doctor.ts'
import { reasonOf } from '../shared/http/endpoints.ts'
import { probed } from '../shared/probe.ts'
import { nonsense } from './client.ts'
import type { ConsulCall } from './engine.ts'
import { isDenied, isTtlTooShort } from './errors.ts'
import { keyOf } from './keys.ts'

interface ConsulAgent {
  readonly url: string
  /** '' when it knows none. */
  readonly leader: string
  readonly peers: readonly string[]
}

const report = findings('consul')

/** Are these servers fit to hold locks of such a ttl? Asks every agent, and takes a lease on a name of its own. */
export async function checkConsul(engine: Engine, call: ConsulCall, ttlMs: number): Promise<readonly Finding[]> {
  const { client, prefix, timeoutMs } = call
  const { answers: agents, reached } = await askServers('consul', client.endpoints.urls, (url) => askAgent(call, url))
  const leaderless = agents.filter(({ leader }) => leader === '').map(({ url }) => noLeader(url))
  const led = agents.find(({ leader }) => leader !== '')
  if (led === undefined) return [...reached, ...leaderless]
  return [
    ...reached,
    ...leaderless,
    checkSize(report, 'servers', led.peers.length, 'server'),
    ...checkCluster(agents),
    ...(await checkHealth(call, led.url)),
    ...checkLockDelay(call, ttlMs),
    ...(await checkLease(report, engine, {
      ...call,
      ttlMs,
      meaning: 'The token, where there are ACLs, has the permissions that are needed.',
      read: () => client.read(keyOf(prefix, 'check'), timeoutMs),
      refused,
    })),
  ]
}

/** How each agent answers now. None of them tells its time. */
export function probeConsul(call: ConsulCall): Promise<readonly NodeState[]> {
  const ask = async (url: string): Promise<undefined> => {
    const { leader } = await askAgent(call, url)
    if (leader === '') throw new Error('knows no leader')
  }
  return Promise.all(call.client.endpoints.urls.map((url) => probed(url, call.clock, () => ask(url), reasonOf)))
}

async function askAgent({ client, timeoutMs }: ConsulCall, url: string): Promise<ConsulAgent> {
  const [leader, peers] = await Promise.all([
    client.ask(url, '/v1/status/leader', timeoutMs),
    client.ask(url, '/v1/status/peers', timeoutMs),
  ])
  if (typeof leader.answer !== 'string') {
    // Without a leader, some agents fail to answer even this.
    if (leader.text.includes('No cluster leader')) return { url, leader: '', peers: [] }
    throw nonsense(leader)
  }
  return { url, leader: leader.answer, peers: Array.isArray(peers.answer) ? (peers.answer as string[]) : [] }
}

function noLeader(url: string): Finding {
  return findings('consul', url).critical(
    'leader',
    'The agent knows no leader.',
    'It cannot reach a majority of the servers. Through it, no lease can be granted or renewed.',
    'Bring a majority of the servers back, or repair the network between them.',
  )
}

function checkCluster(agents: readonly ConsulAgent[]): Finding[] {
  const [first, ...others] = agents.filter(({ peers }) => peers.length > 0)
  const strangers = others.filter(({ peers }) => !peers.some((peer) => first!.peers.includes(peer)))
  if (strangers.length === 0) return []
  const found = `${strangers.map(({ url }) => url).join(', ')} and ${first!.url} belong to different clusters or datacenters.`
  const meaning = 'Each cluster grants leases on its own: two holders at once, whose tokens cannot be compared.'
  return [report.critical('cluster', found, meaning, 'Give agents of one datacenter.')]
}

/** What the servers say about each other. */
async function checkHealth({ client, timeoutMs }: ConsulCall, url: string): Promise<Finding[]> {
  // The agent may go away between two questions.
  const { answer, text } = await client
    .ask(url, '/v1/operator/autopilot/health', timeoutMs)
    .catch((error: unknown) => ({ answer: undefined, text: reasonOf(error) }))
  const { Servers: servers } = (answer ?? {}) as { Servers?: { Name: string; Healthy: boolean; SerfStatus: string }[] }
  if (!Array.isArray(servers)) {
    const found = sentence(`The servers' health could not be asked for: ${text.trim().slice(0, 100)}`)
    return [report.note('health', found, 'Whether all servers are healthy was not checked.')]
  }
  const unhealthy = servers.filter(({ Healthy }) => !Healthy)
  return unhealthy.map(({ Name, SerfStatus }) =>
    findings('consul', Name).warning(
      'health',
      `The server is unhealthy (${SerfStatus}).`,
      'If it stays away, one fewer of the others may fail.',
      'See what it logs.',
    ),
  )
}

function checkLockDelay({ lockDelayMs }: ConsulCall, ttlMs: number): Finding[] {
  const delayMs = lockDelayMs(ttlMs)
  if (delayMs >= ttlMs) return []
  const found = `The lock-delay is ${delayMs} ms, less than the ttl of ${ttlMs} ms.`
  const meaning =
    'A session ends early when it is destroyed, or when its agent leaves the cluster. Its holder learns that with the ' +
    'next renewal, and by then someone else may hold the lease, too.'
  const remedy = 'Take a lockDelay as long as the ttl (Consul allows 60 s at most), and check tokens at the store.'
  return [report.note('lock-delay', found, meaning, remedy)]
}

/** The id of the finding, and the remedy. */
function refused(cause: unknown): [id: string, remedy: string] {
  if (isTtlTooShort(cause)) return ['session-ttl-min', 'Take a longer ttl, or set session_ttl_min on all servers.']
  if (!isDenied(cause)) return ['lease', 'See what the servers log, and run this again.']
  return [
    'permission',
    'Give a token whose policy has session "write" on the agent’s node and key_prefix "write" on the prefix.',
  ]
}
