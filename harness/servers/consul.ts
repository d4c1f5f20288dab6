import path from 'node:path'
import type { Certificates } from '../certificates.ts'
import { program } from '../binaries.ts'
import { startGroup, type Group } from '../group.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder, emptyFolder } from '../temporary-folder.ts'
import { until } from '../until.ts'

interface Agent {
  name: string
  httpPort: number
  serverPort: number
  serfPort: number
}

// Every question to an agent has an end, for a frozen one never answers.
const askWithinMs = 1_000

export interface ConsulSettings {
  /** More of its configuration. */
  hcl?: string
  /** For our own questions, where there are ACLs. */
  token?: string
}

export class ConsulServer extends ServerHandle {
  readonly name: string
  readonly #token: string | undefined
  /** By which the servers name their leader. */
  readonly raftAddress: string

  constructor(server: Server, { name, httpPort, serverPort }: Agent, empty: () => void, token?: string) {
    super(server, { port: httpPort, url: `http://127.0.0.1:${httpPort}` }, empty)
    this.name = name
    this.raftAddress = `127.0.0.1:${serverPort}`
    this.#token = token
  }

  /** Asks the HTTP interface, as in `call('PUT', 'kv/a', 'value')`, and returns the parsed answer. */
  async call(method: string, what: string, body?: string): Promise<unknown> {
    return ask(this.port, method, what, { body, token: this.#token })
  }
}

export interface ConsulCluster extends Group<ConsulServer> {
  urls: string[]
  leader: () => Promise<ConsulServer>
}

export async function startConsul(settings: ConsulSettings = {}): Promise<ConsulServer> {
  return onFreePorts(3, (ports) => {
    const agent = agentOn('n0', ports)
    return startAgent(agent, [agent], settings)
  })
}

/** Speaks TLS on a further port, and wants to see clients' certificates there. */
export async function startSecureConsul({ folder }: Certificates): Promise<{ server: ConsulServer; url: string }> {
  return onFreePorts(1, async ([httpsPort = 0]) => {
    const hcl = `
      ports { https = ${httpsPort} }
      ca_file = "${folder}/ca.pem"
      cert_file = "${folder}/server.pem"
      key_file = "${folder}/server-key.pem"
      verify_incoming_https = true`
    return { server: await startConsul({ hcl }), url: `https://127.0.0.1:${httpsPort}` }
  })
}

/** Servers that elect a leader among themselves; three survive the loss of one. */
export async function startConsulCluster(count = 3): Promise<ConsulCluster> {
  return onFreePorts(3 * count, async (ports) => {
    const agents = Array.from({ length: count }, (_, index) => agentOn(`n${index}`, ports.slice(3 * index)))
    const group = await startGroup(agents.map((agent) => () => startAgent(agent, agents)))
    const leader = (): Promise<ConsulServer> => until(() => findLeader(group.nodes), { what: 'consul has a leader' })
    return { ...group, urls: group.nodes.map((node) => node.url), leader }
  })
}

function agentOn(name: string, [httpPort = 0, serverPort = 0, serfPort = 0]: number[]): Agent {
  return { name, httpPort, serverPort, serfPort }
}

async function startAgent(
  agent: Agent,
  agents: readonly Agent[],
  { hcl = '', token }: ConsulSettings = {},
): Promise<ConsulServer> {
  const folder = createFolder('consul')
  const data = path.join(folder, 'data')
  emptyFolder(data)
  const { path: consul, env } = program('consul')
  const server = await Server.start({
    name: `consul:${agent.httpPort}`,
    folder,
    command: { path: consul, args: agentArguments(agent, agents, data, hcl), env },
    port: agent.httpPort,
    ready: () => servesWrites(agent.httpPort, token),
  })
  const empty = (): void => {
    if (agents.length > 1) throw new Error('a server of a consul cluster cannot come back without its data')
    emptyFolder(data)
  }
  return new ConsulServer(server, agent, empty, token)
}

function agentArguments(agent: Agent, agents: readonly Agent[], data: string, hcl: string): string[] {
  const settings = {
    'bootstrap-expect': agents.length,
    node: agent.name,
    bind: '127.0.0.1',
    client: '127.0.0.1',
    'data-dir': data,
    'http-port': agent.httpPort,
    'server-port': agent.serverPort,
    'serf-lan-port': agent.serfPort,
    // Not needed here; -1 switches a listener off.
    'serf-wan-port': -1,
    'grpc-port': -1,
    'dns-port': -1,
  }
  // Quick elections, and sessions as short as the tests want them; what comes later wins.
  const configuration = ['performance { raft_multiplier = 1 } session_ttl_min = "1s"', hcl]
  const others = agents.filter((other) => other !== agent).map(({ serfPort }) => `-retry-join=127.0.0.1:${serfPort}`)
  return [
    'agent',
    '-server',
    '-retry-interval=100ms',
    ...Object.entries(settings).map(([name, value]) => `-${name}=${value}`),
    ...configuration.filter((text) => text !== '').map((text) => `-hcl=${text}`),
    ...others,
  ]
}

/** There is a leader, and the agent has registered itself with it: sessions need the node to be known. */
async function servesWrites(port: number, token: string | undefined): Promise<boolean> {
  const questions = ['status/leader', 'catalog/nodes'].map((what) => ask(port, 'GET', what, { token }))
  const [leader, nodes] = await Promise.all(questions)
  return leader !== '' && (nodes as unknown[]).length > 0
}

async function findLeader(nodes: ConsulServer[]): Promise<ConsulServer | undefined> {
  const answers = await Promise.allSettled(nodes.map((node) => node.call('GET', 'status/leader')))
  const running = answers.find((answer) => answer.status === 'fulfilled' && answer.value !== '')
  return nodes.find((node) => node.isRunning && running?.status === 'fulfilled' && node.raftAddress === running.value)
}

async function ask(
  port: number,
  method: string,
  what: string,
  { body, token }: { body?: string | undefined; token?: string | undefined },
): Promise<unknown> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/${what}`, {
    method,
    signal: AbortSignal.timeout(askWithinMs),
    ...(body === undefined ? {} : { body }),
    ...(token === undefined ? {} : { headers: { 'x-consul-token': token } }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`consul answers ${response.status}: ${text}`)
  return JSON.parse(text)
}
