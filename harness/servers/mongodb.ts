import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { program } from '../binaries.ts'
import { shiftedClock, type ShiftedClock } from '../faults/clock.ts'
import { flags } from '../flags.ts'
import { startGroup, type Group } from '../group.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder, emptyFolder, giveToServer } from '../temporary-folder.ts'
import { until } from '../until.ts'
import { mongoCommand, type MongoDocument } from './mongo-wire.ts'

const setName = 'rs0'

const parameters = [
  // Measurements of itself every second, written to the data folder.
  'diagnosticDataCollectionEnabled=false',
  // How long a primary that has to stop waits for another one to take over. No test should wait for that.
  'shutdownTimeoutMillisForSignaledShutdown=100',
].flatMap((parameter) => ['--setParameter', parameter])

export interface MongodbOptions {
  /** A replica set of one: transactions and change streams need it. */
  replicaSet?: boolean
  /** Lets `shiftClock` move the wall clock of this server alone. */
  clockShift?: boolean
  /** Lets nobody in but `root`, with the password `root`. */
  auth?: boolean
  /** Further arguments, such as `['--tlsMode', 'preferTLS']`. */
  args?: readonly string[]
}

interface ServerFiles {
  data: string
  clock: ShiftedClock | undefined
  /** Read at every start. */
  args: string[]
}

export class MongodbServer extends ServerHandle {
  readonly #clock: ShiftedClock | undefined
  readonly #args: string[]

  constructor(server: Server, port: number, query: string, { data, clock, args }: ServerFiles) {
    super(server, { port, url: `mongodb://127.0.0.1:${port}/?${query}` }, () => emptyFolder(data))
    this.#clock = clock
    this.#args = args
  }

  /** Runs one command, as in `command({ ping: 1 })`; its first key is the command's name. */
  command(document: MongoDocument, database = 'admin'): Promise<MongoDocument> {
    return mongoCommand(this.port, { ...document, $db: database })
  }

  /** Restarts a server without a replica set as a set of one, with its data. */
  async restartAsReplicaSet(): Promise<void> {
    await this.restart({ prepare: () => void this.#args.push('--replSet', setName) })
    await until(() => takesWrites(this.port, true), { what: 'the replica set has a primary', withinMs: 30_000 })
  }

  /** Needs `clockShift`. Sets how far this server's wall clock is ahead of the machine's. */
  shiftClock(offsetMs: number): void {
    if (this.#clock === undefined) throw new Error('start the server with clockShift: true to shift its clock')
    this.#clock.shift(offsetMs)
  }

  /** Needs `clockShift`. Makes this server's wall clock stand still at this time (ms since 1970), until it is called again. */
  stopClock(wallMs: number): void {
    if (this.#clock === undefined) throw new Error('start the server with clockShift: true to stop its clock')
    this.#clock.stop(wallMs)
  }
}

export async function startMongodb(options: MongodbOptions = {}): Promise<MongodbServer> {
  const { replicaSet = false, auth = false } = options
  const server = await onFreePorts(1, ([port = 0]) =>
    startMember(port, options, {
      query: replicaSet ? `replicaSet=${setName}` : 'directConnection=true',
      ready: () => takesWrites(port, replicaSet),
    }),
  )
  // While there is no user, anyone on the same machine may make the first one.
  if (auth) await server.command({ createUser: 'root', pwd: 'root', roles: ['root'] })
  return server
}

export interface ReplicaSetOptions {
  /** How many have data. Default 3. */
  members?: number
  /** How many only vote. Default none. */
  arbiters?: number
  /** Top-level fields of the set's configuration, such as `writeConcernMajorityJournalDefault`. */
  config?: MongoDocument
  clockShift?: boolean
}

export interface MongodbReplicaSet extends Group<MongodbServer> {
  readonly url: string
  /** The member that takes writes and that a majority follows. */
  primary: () => Promise<MongodbServer>
}

/** Members that elect a primary among themselves; three survive the loss of one. */
export async function startMongodbReplicaSet(options: ReplicaSetOptions = {}): Promise<MongodbReplicaSet> {
  const { members: count = 3, arbiters = 0, config = {}, clockShift = false } = options
  return onFreePorts(count + arbiters, async (ports) => {
    const hosts = ports.map((port) => `127.0.0.1:${port}`)
    const group = await startGroup(
      ports.map((port) => () => {
        const ready = async (): Promise<boolean> => isMember(await mongoCommand(port, { hello: 1, $db: 'admin' }))
        return startMember(port, { replicaSet: true, clockShift }, { query: 'directConnection=true', ready })
      }),
    )
    try {
      const members = hosts.map((host, index) => ({
        _id: index,
        host,
        ...(index >= count ? { arbiterOnly: true } : {}),
      }))
      // Quick elections: the members are on one machine.
      const settings = { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 }
      await group.nodes[0]!.command({ replSetInitiate: { _id: setName, members, settings, ...config } })
      const primary = (): Promise<MongodbServer> =>
        until(() => findPrimary(group.nodes), { what: 'the replica set has a primary', withinMs: 30_000 })
      await primary()
      await until(() => allInStep(group.nodes), { what: 'every member is in step', withinMs: 30_000 })
      return { ...group, url: `mongodb://${hosts.join(',')}/?replicaSet=${setName}`, primary }
    } catch (error) {
      await group.stop()
      throw error
    }
  })
}

async function startMember(
  port: number,
  { replicaSet = false, clockShift = false, auth = false, args: further = [] }: MongodbOptions,
  { query, ready }: { query: string; ready: () => Promise<boolean> },
): Promise<MongodbServer> {
  const folder = createFolder('mongodb')
  const data = path.join(folder, 'data')
  emptyFolder(data)
  const clock = clockShift ? shiftedClock(folder) : undefined
  const { path: mongod, env } = program('mongod')
  const settings = flags({
    dbpath: data,
    port,
    bind_ip: '127.0.0.1',
    wiredTigerCacheSizeGB: 0.25,
    ...(replicaSet ? { replSet: setName } : {}),
    // By which members of a set know each other; it makes the server ask everyone else for a login.
    ...(auth ? { keyFile: keyFile(folder) } : {}),
  })
  const args = ['--nounixsocket', ...settings, ...parameters, ...further]
  const server = await Server.start({
    name: `mongodb:${port}`,
    folder,
    command: { path: mongod, args, env: { ...env, ...clock?.env } },
    port,
    ready,
  })
  return new MongodbServer(server, port, query, { data, clock, args })
}

function keyFile(folder: string): string {
  const file = path.join(folder, 'key')
  writeFileSync(file, 'a keythatisthesameforallmembers', { mode: 0o400 })
  giveToServer(file)
  return file
}

/** A new replica set is initiated on the way; one that has its data elects its only member again by itself. */
async function takesWrites(port: number, replicaSet: boolean): Promise<boolean> {
  const hello = await mongoCommand(port, { hello: 1, $db: 'admin' })
  if (replicaSet && hello['setName'] === undefined) {
    // A restarted member that has not read its settings yet refuses this, which is as good as "not yet".
    const members = [{ _id: 0, host: `127.0.0.1:${port}` }]
    await mongoCommand(port, { replSetInitiate: { _id: setName, members }, $db: 'admin' })
    return false
  }
  // Waiting to be told about its set, after `restartAsReplicaSet`.
  return hello['isWritablePrimary'] === true || (!replicaSet && hello['isreplicaset'] === true)
}

/** Waiting to be told about its set for the first time, or a part of it. */
function isMember(hello: MongoDocument): boolean {
  return [hello['isreplicaset'], hello['isWritablePrimary'], hello['secondary'], hello['arbiterOnly']].includes(true)
}

async function findPrimary(nodes: readonly MongodbServer[]): Promise<MongodbServer | undefined> {
  const running = nodes.filter((node) => node.isRunning)
  const answers = await Promise.allSettled(running.map((node) => node.command({ hello: 1 })))
  const hellos = answers.map((answer) => (answer.status === 'fulfilled' ? answer.value : {}))
  return running.find((node, index) => {
    if (hellos[index]!['isWritablePrimary'] !== true) return false
    const followers = hellos.filter((hello) => hello['primary'] === `127.0.0.1:${node.port}`)
    return followers.length > nodes.length / 2
  })
}

async function allInStep(nodes: readonly MongodbServer[]): Promise<boolean> {
  const hellos = await Promise.all(nodes.map((node) => node.command({ hello: 1 })))
  return hellos.every((hello) => [hello['isWritablePrimary'], hello['secondary'], hello['arbiterOnly']].includes(true))
}
