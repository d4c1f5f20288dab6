import { mkdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import path from 'node:path'
import { program, server as installed } from '../binaries.ts'
import { shiftedClock, type ShiftedClock } from '../faults/clock.ts'
import { startGroup, type Group } from '../group.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { runTool, Server, type Command } from '../process.ts'
import { createFolder, emptyFolder, giveToServer } from '../temporary-folder.ts'
import { until } from '../until.ts'

interface Member {
  id: number
  clientPort: number
  quorumPort: number
  electionPort: number
}

type Mode = 'standalone' | 'leader' | 'follower'

export interface ZookeeperOptions {
  /** The longest session; the server's own default is 20 ticks. */
  maxSessionMs?: number
  minSessionMs?: number
  /** Java properties: `{ 'zookeeper.forceSync': 'yes' }`. */
  properties?: Record<string, string>
  /** Lets `stopClock` hold the wall clock of this server alone. */
  clockShift?: boolean
}

// The unit of ZooKeeper's timeouts: a session lasts at least 2 of them.
const tickMs = 200
// Long enough for the leases of 30 s that the conformance suite makes.
const maxSessionMs = 120_000

// Three of them share two cores: small heaps, the plain collector and the quick compiler start fastest. Without
// UsePerfData Java leaves no files in /tmp.
const QUICK_JAVA = ['-Xmx96m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-XX:-UsePerfData']

export class ZookeeperServer extends ServerHandle {
  readonly #clock: ShiftedClock | undefined

  constructor(server: Server, { clientPort }: Member, empty: () => void, clock: ShiftedClock | undefined) {
    super(server, { port: clientPort, url: `zookeeper://127.0.0.1:${clientPort}` }, empty)
    this.#clock = clock
  }

  /** Needs `clockShift`. Makes this server's wall clock stand still at this time (ms since 1970), until it is called again. */
  stopClock(wallMs: number): void {
    if (this.#clock === undefined) throw new Error('start the server with clockShift: true to stop its clock')
    this.#clock.stop(wallMs)
  }

  /** The answer to a four-letter command, such as `ruok` or `cons`. */
  command(word: string): Promise<string> {
    return fourLetters(this.port, word)
  }

  /** Runs the lines by ZooKeeper's own shell, zkCli. */
  async shell(lines: string): Promise<string> {
    const { path: java, env } = program('java')
    const { classPath = '' } = installed('zookeeper')
    const main = ['org.apache.zookeeper.ZooKeeperMain', '-server', `127.0.0.1:${this.port}`]
    return runTool({ path: java, args: [...QUICK_JAVA, '-cp', classPath, ...main], env }, lines)
  }

  async mode(): Promise<Mode | undefined> {
    return modeOf(this.port)
  }
}

export interface ZookeeperEnsemble extends Group<ZookeeperServer> {
  /** All servers as clients want them: `host:port,host:port`. */
  connectString: string
  leader: () => Promise<ZookeeperServer>
}

export async function startZookeeper(options: ZookeeperOptions = {}): Promise<ZookeeperServer> {
  return onFreePorts(3, (ports) => {
    const member = memberOn(1, ports)
    return startMember(member, [member], options)
  })
}

/** Servers that elect a leader among themselves; three survive the loss of one. */
export async function startZookeeperEnsemble(count = 3, options: ZookeeperOptions = {}): Promise<ZookeeperEnsemble> {
  return onFreePorts(3 * count, async (ports) => {
    const members = Array.from({ length: count }, (_, index) => memberOn(index + 1, ports.slice(3 * index)))
    const group = await startGroup(members.map((member) => () => startMember(member, members, options)))
    const connectString = group.nodes.map(({ host, port }) => `${host}:${port}`).join(',')
    const leader = (): Promise<ZookeeperServer> =>
      until(() => findLeader(group.nodes), { what: 'the ensemble has a leader' })
    return { ...group, connectString, leader }
  })
}

function memberOn(id: number, [clientPort = 0, quorumPort = 0, electionPort = 0]: number[]): Member {
  return { id, clientPort, quorumPort, electionPort }
}

async function startMember(
  member: Member,
  members: readonly Member[],
  options: ZookeeperOptions,
): Promise<ZookeeperServer> {
  const folder = createFolder('zookeeper')
  const makeData = (): void => {
    emptyFolder(path.join(folder, 'data'))
    writeFor(path.join(folder, 'data', 'myid'), String(member.id))
  }
  makeData()
  writeFor(path.join(folder, 'zoo.cfg'), configuration(folder, member, members, options))
  // Only what goes wrong, or the log would drown it.
  writeFor(
    path.join(folder, 'log4j.properties'),
    `log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c{1} %m%n
`,
  )
  const clock = options.clockShift === true ? shiftedClock(folder) : undefined
  const command = javaCommand(folder, options)
  const server = await Server.start({
    name: `zookeeper:${member.clientPort}`,
    folder,
    command: { ...command, env: { ...command.env, ...clock?.env } },
    port: member.clientPort,
    ready: async () => (await modeOf(member.clientPort)) !== undefined,
  })
  return new ZookeeperServer(server, member, makeData, clock)
}

function configuration(folder: string, member: Member, members: readonly Member[], options: ZookeeperOptions): string {
  const ensemble = members.map(
    ({ id, quorumPort, electionPort }) => `server.${id}=127.0.0.1:${quorumPort}:${electionPort}`,
  )
  return `tickTime=${tickMs}
minSessionTimeout=${options.minSessionMs ?? 2 * tickMs}
maxSessionTimeout=${options.maxSessionMs ?? maxSessionMs}
initLimit=50
syncLimit=10
dataDir=${path.join(folder, 'data')}
clientPort=${member.clientPort}
clientPortAddress=127.0.0.1
${members.length > 1 ? ensemble.join('\n') : ''}
`
}

function javaCommand(folder: string, options: ZookeeperOptions): Command {
  const { path: java, env } = program('java')
  const { classPath = '' } = installed('zookeeper')
  const settings = {
    'zookeeper.admin.enableServer': 'false',
    'zookeeper.4lw.commands.whitelist': '*',
    'zookeeper.forceSync': 'no',
    ...options.properties,
  }
  const properties = Object.entries(settings).map(([name, value]) => `-D${name}=${value}`)
  const main = ['org.apache.zookeeper.server.quorum.QuorumPeerMain', path.join(folder, 'zoo.cfg')]
  return { path: java, args: [...QUICK_JAVA, ...properties, '-cp', `${folder}:${classPath}`, ...main], env }
}

async function findLeader(nodes: ZookeeperServer[]): Promise<ZookeeperServer | undefined> {
  const modes = await Promise.allSettled(nodes.map((node) => node.mode()))
  return nodes.find((_node, index) => {
    const mode = modes[index]
    return mode?.status === 'fulfilled' && mode.value === 'leader'
  })
}

/** Undefined while the server is not part of a quorum. */
async function modeOf(port: number): Promise<Mode | undefined> {
  const answer = await fourLetters(port, 'srvr')
  return /^Mode: (standalone|leader|follower)$/m.exec(answer)?.[1] as Mode | undefined
}

function fourLetters(port: number, word: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = ''
    const socket = connect(port, '127.0.0.1', () => socket.write(word))
    socket.setEncoding('utf8').on('data', (text) => (answer += String(text)))
    socket.setTimeout(1_000, () => socket.destroy(new Error(`no answer to ${word}`)))
    socket.once('error', reject)
    socket.once('close', () => resolve(answer))
  })
}

function writeFor(file: string, text: string): void {
  mkdirSync(path.dirname(file), { recursive: true })
  writeFileSync(file, text)
  giveToServer(file)
}
