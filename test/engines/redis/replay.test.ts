import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { Redis } from 'ioredis'
import { afterAll, expect, test } from 'vitest'
import { startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { createFolder, giveToServer, removeFolder } from '../../../harness/temporary-folder.ts'
import { until } from '../../../harness/until.ts'
import { createLocks, type Locks } from '../../../src/index.ts'
import { redlock } from '../../../src/engines/redis/index.ts'

const folder = createFolder('acl')
afterAll(() => removeFolder(folder))

/** No case is about time: on a machine that does much else it may take as long as this. */
const PATIENT_MS = 60_000
/** A lease that is held to the end of its case, and nodes that sit out for as long. */
const TTL_MS = 10 * PATIENT_MS

/** Three durable servers whose ACL file says this of the user default. */
async function startNodes(rights: string, { args = [], valkey = false }: { args?: string[]; valkey?: boolean } = {}) {
  const file = path.join(folder, `${Math.random()}.acl`)
  const write = (rightsNow: string): void => {
    writeFileSync(file, `user default off ${rightsNow}\nuser ops on >any ~* &* +@all\n`)
    giveToServer(file)
  }
  write(rights)
  const group = await startRedisNodes(3, { durable: true, valkey, args: ['--aclfile', file, ...args] })
  const clients: Redis[] = []
  const all: Locks[] = []
  const connect = ({ host, port }: RedisServer): Redis => {
    const client = new Redis(`redis://ops:any@${host}:${port}`)
    clients.push(client)
    // They restart; the driver's own reports of it are not what is tested.
    return client.on('error', () => undefined)
  }
  const admins = group.nodes.map(connect)
  return {
    write,
    locks: (prefix: string): Locks => {
      const locks = createLocks(
        redlock(group.nodes.map(connect), { prefix, requestTimeout: PATIENT_MS, maxTtl: TTL_MS }),
      )
      all.push(locks)
      return locks
    },
    onAll: (...command: [string, ...string[]]): Promise<unknown[]> =>
      Promise.all(admins.map((client) => client.call(...command))),
    rewrite: async (): Promise<void> => {
      await Promise.all(admins.map((client) => client.call('BGREWRITEAOF')))
      const states = (): Promise<string[]> => Promise.all(admins.map((client) => client.info('persistence')))
      await until(async () => (await states()).every(isRewritten), {
        what: 'the files are rewritten',
        withinMs: PATIENT_MS,
      })
    },
    restart: async (): Promise<void> => {
      for (const node of group.nodes) await node.restart()
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(all.map((locks) => locks.close()))
      for (const client of clients) client.disconnect()
      await group.stop()
    },
  }
}

type Nodes = Awaited<ReturnType<typeof startNodes>>

const isRewritten = (info: string): boolean =>
  /aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0/.test(info) && !/aof_current_rewrite_time_sec:\d/.test(info)

interface Case {
  readonly what: string
  readonly rights: string
  readonly args?: string[]
  readonly valkey?: boolean
  readonly prefix?: string
  /** Between the start of the servers and the first look at them. */
  readonly hook?: (nodes: Nodes) => Promise<unknown>
  /** Between the restart and the first look. */
  readonly unseen?: (nodes: Nodes) => Promise<unknown>
  /** What the doctor says of a node then. */
  readonly doctor: RegExp
  /** What it says of one that has left nothing out: Valkey 9 replays without a look at rights. */
  readonly ifKept?: RegExp
}

const ALL = ['~*', '&*', '+@all'] as const
const give = (nodes: Nodes): Promise<unknown> => nodes.onAll('ACL', 'SETUSER', 'default', ...ALL)
const NO_RIGHTS = /critical: .*the user default has no right to write/
const LEFT_OUT = /critical: .*when it started it left something of its file out/
const NOT_TOLD = /ok: .*It sits out nevertheless: the rights of the user default could not be asked for/
const CHANGED = /ok: .*It sits out nevertheless: since its last start ACL SETUSER/

const CASES: readonly Case[] = [
  { what: 'has no rights', rights: '', doctor: LEFT_OUT, ifKept: NO_RIGHTS },
  { what: 'has no rights, on Valkey', rights: '', valkey: true, doctor: LEFT_OUT, ifKept: NO_RIGHTS },
  { what: 'gets its rights at run time', rights: '', hook: give, doctor: LEFT_OUT, ifKept: CHANGED },
  {
    what: 'gets its rights at run time, and restarts again after a rewrite that nobody saw',
    rights: '',
    hook: give,
    unseen: async (nodes) => {
      await nodes.rewrite()
      await nodes.restart()
    },
    doctor: CHANGED,
  },
  {
    what: 'gets its rights by ACL LOAD, and restarts again after a rewrite that nobody saw',
    rights: '',
    hook: async (nodes) => {
      nodes.write(ALL.join(' '))
      await nodes.onAll('ACL', 'LOAD')
      nodes.write('')
    },
    unseen: async (nodes) => {
      await nodes.rewrite()
      await nodes.restart()
    },
    doctor: CHANGED,
  },
  {
    what: 'gets its rights at run time, and what was counted is reset',
    rights: '',
    hook: async (nodes) => {
      await give(nodes)
      await nodes.onAll('CONFIG', 'RESETSTAT')
    },
    doctor: CHANGED,
  },
  {
    what: 'has a right to a key of another name',
    rights: '~lock ~ringfence:* &* +@all',
    doctor: LEFT_OUT,
    ifKept: NO_RIGHTS,
  },
  {
    what: 'has a right to keys of another prefix, and restarts again after a rewrite that nobody saw',
    rights: '~lock* ~ringfence:* &* +@all',
    prefix: 'job:',
    unseen: async (nodes) => {
      await nodes.rewrite()
      await nodes.restart()
    },
    doctor: NO_RIGHTS,
  },
  {
    what: 'has no rights, where the command ACL has another name',
    rights: '',
    args: ['--rename-command', 'ACL', 'HIDDEN'],
    doctor: LEFT_OUT,
    ifKept: NOT_TOLD,
  },
  {
    what: 'gets its rights by a command ACL that has another name, and restarts again after a rewrite that nobody saw',
    rights: '',
    args: ['--rename-command', 'ACL', 'HIDDEN'],
    hook: (nodes) => nodes.onAll('HIDDEN', 'SETUSER', 'default', ...ALL),
    unseen: async (nodes) => {
      await nodes.rewrite()
      await nodes.restart()
    },
    doctor: NOT_TOLD,
  },
]

async function persistence(locks: Locks): Promise<string[]> {
  const findings = (await locks.check()).filter(({ id }) => id === 'redis/persistence')
  return findings.map(({ severity, found, meaning }) => `${severity}: ${found} ${meaning}`)
}

// One after the other: each has three servers, and two cores start no more of them sooner.
test.each(CASES)(
  'a durable node whose user default $what is not believed to have kept a lease',
  { timeout: 10 * PATIENT_MS },
  async ({ rights, args = [], valkey = false, prefix = '', hook, unseen, doctor, ifKept = doctor }) => {
    await using nodes = await startNodes(rights, { args, valkey })
    await hook?.(nodes)
    const [one, two] = [nodes.locks(prefix), nodes.locks(prefix)]
    await (await one.acquire('warm-up')).release()
    await nodes.rewrite()
    const lease = await one.acquire('order', { ttl: TTL_MS, renew: false })
    await nodes.restart()
    await unseen?.(nodes)
    await hook?.(nodes)
    expect(lease.held).toBe(true)
    await expect(two.tryAcquire('order')).rejects.toThrow('may have forgotten leases')
    const kept = await nodes.onAll('EXISTS', `${prefix}order`)
    const said = await persistence(two)
    expect(said).toHaveLength(kept.length)
    for (const [index, what] of said.entries()) expect(what).toMatch(kept[index] === 1 ? ifKept : doctor)
  },
)

test.each([{ valkey: false }, { valkey: true }])(
  'a durable node that replays all votes at once, also after a rewrite (Valkey: $valkey)',
  { timeout: 10 * PATIENT_MS },
  async ({ valkey }) => {
    await using nodes = await startNodes(ALL.join(' '), { valkey })
    const [one, two] = [nodes.locks('lock:'), nodes.locks('lock:')]
    await (await one.acquire('warm-up')).release()
    await nodes.rewrite()
    await one.acquire('order', { ttl: TTL_MS, renew: false })
    await nodes.restart()
    expect(await two.tryAcquire('order')).toBeNull()
    expect(await two.tryAcquire('another')).not.toBeNull()
    for (const said of await persistence(two))
      expect(said).toMatch(/^ok: .* forgets no lease and no fencing counter\.$/)
  },
)
