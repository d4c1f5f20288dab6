import type { Clock } from '../../clock.ts'
import type { Engine, Finding } from '../../engine.ts'
import type { Random } from '../../random.ts'
import { checkRoundTrip, checkSize, tryLease } from '../http/doctor.ts'
import { reasonOf } from '../http/endpoints.ts'
import { ConsulError, isDenied, type ConsulClient } from './client.ts'
import { keyOf } from './keys.ts'

export interface CheckPlan {
  readonly client: ConsulClient
  readonly prefix: string
  readonly clock: Clock
  readonly random: Random
  readonly timeoutMs: number
  readonly lockDelayMs: (ttlMs: number) => number
}

interface Agent {
  readonly url: string
  /** '' when it knows none. */
  readonly leader: string
  readonly peers: readonly string[]
}

/** Are these servers fit to hold locks of such a ttl? Asks every agent, and takes a lease on a name of its own to see. */
export async function checkConsul(engine: Engine, plan: CheckPlan, ttlMs: number): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  const agents: Agent[] = []
  const { urls } = plan.client.endpoints
  await Promise.all(
    urls.map(async (url) => {
      try {
        agents.push(await askAgent(plan, url))
        findings.push({
          id: 'consul/reachable',
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
  if (agents.length === 0) return findings
  for (const { url } of agents.filter(({ leader }) => leader === '')) findings.push(noLeader(url))
  const led = agents.find(({ leader }) => leader !== '')
  if (led === undefined) return findings
  findings.push(checkSize('consul/servers', led.peers.length, 'server'), ...checkCluster(agents))
  findings.push(...(await checkHealth(plan, led.url)), ...checkLockDelay(plan, ttlMs))
  findings.push(...(await checkLease(engine, plan, ttlMs)))
  return findings
}

async function askAgent({ client, timeoutMs }: CheckPlan, url: string): Promise<Agent> {
  const [leader, peers] = await Promise.all(
    ['leader', 'peers'].map((what) => client.ask(url, `/v1/status/${what}`, timeoutMs)),
  )
  if (typeof leader!.answer !== 'string') {
    // Where there is none, this can't be told either.
    if (leader!.text.includes('No cluster leader')) return { url, leader: '', peers: [] }
    throw new Error(`expected an answer of Consul's, got ${leader!.status} ${leader!.text.slice(0, 100)}`)
  }
  return { url, leader: leader!.answer, peers: Array.isArray(peers!.answer) ? (peers!.answer as string[]) : [] }
}

function unreachable(url: string, why: string, of: number): Finding {
  return {
    id: 'consul/reachable',
    severity: of === 1 ? 'critical' : 'warning',
    node: url,
    found: why,
    meaning: of === 1 ? 'No lease can be granted or renewed.' : 'The others are asked instead; one less may fail.',
    remedy: 'See whether it runs, and whether URL, TLS and firewall let this machine in.',
  }
}

function noLeader(url: string): Finding {
  return {
    id: 'consul/leader',
    severity: 'critical',
    node: url,
    found: 'knows no leader',
    meaning: 'A majority of the servers is gone or out of its reach: through it, no lease can be granted or renewed.',
    remedy: 'Bring a majority of the servers back, or repair the network between them.',
  }
}

function checkCluster(agents: readonly Agent[]): Finding[] {
  const led = agents.filter(({ peers }) => peers.length > 0)
  const strangers = led.filter(({ peers }) => !peers.some((peer) => led[0]!.peers.includes(peer)))
  if (strangers.length === 0) return []
  return [
    {
      id: 'consul/cluster',
      severity: 'critical',
      found: `${strangers.map(({ url }) => url).join(', ')} and ${led[0]!.url} belong to different clusters or datacenters`,
      meaning: 'Each grants leases on its own: two holders at once, whose tokens can not be compared.',
      remedy: 'Give agents of one datacenter.',
    },
  ]
}

/** What the servers think of each other. */
async function checkHealth({ client, timeoutMs }: CheckPlan, url: string): Promise<Finding[]> {
  const { answer, text } = await client.ask(url, '/v1/operator/autopilot/health', timeoutMs)
  const { Servers: servers } = (answer ?? {}) as { Servers?: { Name: string; Healthy: boolean; SerfStatus: string }[] }
  if (!Array.isArray(servers)) {
    const meaning = 'How the servers are was not checked.'
    return [
      { id: 'consul/health', severity: 'note', found: `could not be asked for: ${text.trim().slice(0, 100)}`, meaning },
    ]
  }
  const unhealthy = servers.filter(({ Healthy }) => !Healthy)
  return unhealthy.map(({ Name, SerfStatus }) => ({
    id: 'consul/health',
    severity: 'warning',
    node: Name,
    found: `is unhealthy (${SerfStatus})`,
    meaning: 'If it stays away, one less of the others may fail.',
    remedy: 'See what it logs.',
  }))
}

function checkLockDelay({ lockDelayMs }: CheckPlan, ttlMs: number): Finding[] {
  const delayMs = lockDelayMs(ttlMs)
  if (delayMs >= ttlMs) return []
  return [
    {
      id: 'consul/lock-delay',
      severity: 'note',
      found: `the lock-delay is ${delayMs} ms, less than the ttl of ${ttlMs} ms`,
      meaning:
        'A session ends early when it is destroyed, or when its agent leaves the cluster. Its holder learns of it with the ' +
        'next renewal; someone else may have got in before.',
      remedy: 'Take a lockDelay as long as the ttl (Consul allows 60 s at most), and check tokens at the store.',
    },
  ]
}

async function checkLease(engine: Engine, plan: CheckPlan, ttlMs: number): Promise<Finding[]> {
  const { client, prefix, clock, random, timeoutMs } = plan
  try {
    const failure = await tryLease(engine, ttlMs, random)
    if (failure !== undefined) return [noLease(failure)]
    const read = (): Promise<unknown> => client.read(keyOf(prefix, 'check'), timeoutMs)
    const meaning = 'The token, if there are ACLs, permits what is needed.'
    return [
      { id: 'consul/lease', severity: 'ok', found: 'a lease could be taken and given back', meaning },
      await checkRoundTrip('consul/round-trip', read, { clock, ttlMs, timeoutMs }),
    ]
  } catch (error) {
    return [noLease(error)]
  }
}

function noLease(error: unknown): Finding {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const found = reasonOf(cause)
  const meaning = 'No lease could be taken.'
  const severity = 'critical'
  if (cause instanceof ConsulError && cause.message.includes('Invalid Session TTL')) {
    const remedy = 'Take a longer ttl, or set session_ttl_min on all servers.'
    return { id: 'consul/session-ttl-min', severity, found, meaning, remedy }
  }
  if (isDenied(cause)) {
    const remedy =
      'Give a token whose policy has session "write" on the agent’s node and key_prefix "write" on the prefix.'
    return { id: 'consul/permission', severity, found, meaning, remedy }
  }
  return { id: 'consul/lease', severity, found, meaning, remedy: 'See what the servers log, and run this again.' }
}
