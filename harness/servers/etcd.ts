import path from 'node:path'
import type { Certificates } from '../certificates.ts'
import { program } from '../binaries.ts'
import { flags } from '../flags.ts'
import { startGroup, type Group } from '../group.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder, emptyFolder } from '../temporary-folder.ts'
import { until } from '../until.ts'

interface Member {
  name: string
  clientPort: number
  peerPort: number
}

// Every question to a member has an end, for a frozen one never answers.
const askWithinMs = 1_000

export class EtcdServer extends ServerHandle {
  readonly name: string

  constructor(server: Server, { name, clientPort }: Member, empty: () => void) {
    super(server, { port: clientPort, url: `http://127.0.0.1:${clientPort}` }, empty)
    this.name = name
  }

  /** Posts to the JSON gateway, as in `call('kv/put', { key, value })`. */
  async call(what: string, body: object): Promise<Record<string, unknown>> {
    return post(this.port, what, body)
  }
}

export interface EtcdCluster extends Group<EtcdServer> {
  urls: string[]
  leader: () => Promise<EtcdServer>
}

export async function startEtcd(settings: Record<string, string> = {}): Promise<EtcdServer> {
  return onFreePorts(2, ([clientPort = 0, peerPort = 0]) => {
    const member = { name: 'n0', clientPort, peerPort }
    return startMember(member, [member], { settings })
  })
}

/** Speaks TLS with clients, and wants to see their certificate. */
export async function startSecureEtcd({ folder }: Certificates): Promise<EtcdServer> {
  return onFreePorts(3, ([clientPort = 0, peerPort = 0, metricsPort = 0]) => {
    const member = { name: 'n0', clientPort, peerPort }
    const clientUrl = `https://127.0.0.1:${clientPort}`
    const settings = {
      'listen-client-urls': clientUrl,
      'advertise-client-urls': clientUrl,
      'cert-file': path.join(folder, 'server.pem'),
      'key-file': path.join(folder, 'server-key.pem'),
      'trusted-ca-file': path.join(folder, 'ca.pem'),
      // For the look at its health.
      'listen-metrics-urls': `http://127.0.0.1:${metricsPort}`,
    }
    const isReady = (): Promise<boolean> => isHealthy(metricsPort)
    return startMember(member, [member], { settings, switches: ['--client-cert-auth'], isReady })
  })
}

/** A further member that gets everything and has no vote. */
export async function addEtcdLearner(cluster: EtcdCluster): Promise<EtcdServer> {
  return onFreePorts(2, async ([clientPort = 0, peerPort = 0]) => {
    const learner = { name: 'learner', clientPort, peerPort }
    const leader = await cluster.leader()
    // Refused until every member has been connected to the others for some seconds.
    const answer = await until(
      () => leader.call('cluster/member/add', { peerURLs: [peerUrl(learner)], isLearner: true }),
      {
        what: 'etcd takes a learner',
        withinMs: 30_000,
      },
    )
    const { members } = answer as { members: { name?: string; peerURLs: string[] }[] }
    const peers = members.map(({ name = learner.name, peerURLs }) => `${name}=${peerURLs[0]}`)
    const settings = { 'initial-cluster': peers.join(','), 'initial-cluster-state': 'existing' }
    // Nobody asks it about keys.
    const isReady = async (): Promise<boolean> => 'version' in (await post(clientPort, 'maintenance/status', {}))
    return startMember(learner, [learner], { settings, isReady })
  })
}

/** Members that elect a leader among themselves; three survive the loss of one. */
export async function startEtcdCluster(count = 3): Promise<EtcdCluster> {
  return onFreePorts(2 * count, async (ports) => {
    const members = Array.from({ length: count }, (_, index) => ({
      name: `n${index}`,
      clientPort: ports[2 * index] ?? 0,
      peerPort: ports[2 * index + 1] ?? 0,
    }))
    const group = await startGroup(members.map((member) => () => startMember(member, members)))
    const leader = (): Promise<EtcdServer> => until(() => findLeader(group.nodes), { what: 'etcd has a leader' })
    return { ...group, urls: group.nodes.map((node) => node.url), leader }
  })
}

interface Particulars {
  settings: Record<string, string>
  switches?: string[]
  isReady?: () => Promise<boolean>
}

async function startMember(
  member: Member,
  members: readonly Member[],
  { settings: more, switches = [], isReady = () => isHealthy(member.clientPort) }: Particulars = { settings: {} },
): Promise<EtcdServer> {
  const folder = createFolder('etcd')
  const data = path.join(folder, 'data')
  emptyFolder(data)
  const { path: etcd, env } = program('etcd')
  const clientUrl = `http://127.0.0.1:${member.clientPort}`
  const settings = flags({
    name: member.name,
    'data-dir': data,
    'listen-client-urls': clientUrl,
    'advertise-client-urls': clientUrl,
    'listen-peer-urls': peerUrl(member),
    'initial-advertise-peer-urls': peerUrl(member),
    'initial-cluster': members.map((each) => `${each.name}=${peerUrl(each)}`).join(','),
    'initial-cluster-state': 'new',
    // Quick elections: the members are on one machine.
    'heartbeat-interval': 50,
    'election-timeout': 500,
    ...more,
  })
  // What was written survives the end of the process without fsync; that the machine itself fails is not tested.
  settings.push('--unsafe-no-fsync', ...switches)
  const server = await Server.start({
    name: `etcd:${member.clientPort}`,
    folder,
    command: { path: etcd, args: settings, env },
    port: member.clientPort,
    ready: isReady,
  })
  return new EtcdServer(server, member, () => {
    if (members.length > 1) throw new Error('a member of an etcd cluster cannot come back without its data')
    emptyFolder(data)
  })
}

function peerUrl({ peerPort }: Member): string {
  return `http://127.0.0.1:${peerPort}`
}

/** Healthy means that there is a leader and a write goes through. */
async function isHealthy(port: number): Promise<boolean> {
  const response = await fetch(`http://127.0.0.1:${port}/health`, { signal: AbortSignal.timeout(askWithinMs) })
  const { health } = (await response.json()) as { health?: string }
  return health === 'true'
}

async function findLeader(nodes: EtcdServer[]): Promise<EtcdServer | undefined> {
  const answers = await Promise.allSettled(nodes.map((node) => node.call('maintenance/status', {})))
  return nodes.find((_node, index) => {
    const answer = answers[index]
    if (answer?.status !== 'fulfilled') return false
    const { header, leader } = answer.value as { header: { member_id: string }; leader?: string }
    return leader === header.member_id
  })
}

async function post(port: number, what: string, body: object): Promise<Record<string, unknown>> {
  const response = await fetch(`http://127.0.0.1:${port}/v3/${what}`, {
    method: 'POST',
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(askWithinMs),
  })
  if (!response.ok) throw new Error(`etcd answers ${response.status}: ${await response.text()}`)
  return (await response.json()) as Record<string, unknown>
}
