import { chmodSync, cpSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { createPool } from 'mariadb'
import { MongoClient } from 'mongodb'
import { Pool } from 'pg'
import { describe, expect, test } from 'vitest'
import type { ServerHandle } from '../../harness/handle.ts'
import { startEtcd } from '../../harness/servers/etcd.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { createFolder, emptyFolder, giveToServer, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'
import { etcd } from '../../src/engines/etcd/index.ts'
import { mariadb } from '../../src/engines/mariadb/index.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { fileGuard } from '../../src/guards/index.ts'
import type { Engine } from '../../src/engine.ts'
import { createLocks, type Lease } from '../../src/index.ts'

/** A backup of a server that is stopped for it, and the way back. The data folder is what it was started with. */
class Backup implements Disposable {
  readonly #folder = createFolder('backup')
  readonly #data: string
  readonly #server: ServerHandle

  constructor(server: ServerHandle) {
    const words = readFileSync(`/proc/${server.pid}/cmdline`, 'utf8').split('\0')
    const option = /^(?:-D|--dbpath|--data-?dir)(?:=(.*))?$/
    const at = words.findIndex((word) => option.test(word))
    this.#data = option.exec(words[at]!)![1] ?? words[at + 1]!
    this.#server = server
  }

  take(): Promise<void> {
    return this.#server.restart({ prepare: () => cpSync(this.#data, this.#folder, { recursive: true }) })
  }

  restore(): Promise<void> {
    return this.#server.restart({
      prepare: () => {
        emptyFolder(this.#data)
        cpSync(this.#folder, this.#data, { recursive: true })
        chmodSync(this.#data, 0o700)
        for (const name of readdirSync(this.#data, { recursive: true }))
          giveToServer(path.join(this.#data, String(name)))
      },
    })
  }

  [Symbol.dispose](): void {
    removeFolder(this.#folder)
  }
}

/** Opens an engine of a server, as a process that starts does. */
type Open = () => Promise<{ engine: Engine; end: () => Promise<void> }>

/** Clients that are started, take `count` leases one after the other, and are stopped. The last lease, and what a guard says to it. */
async function leases(open: Open, count: number, store: string): Promise<{ token: bigint; guarded: string }> {
  const { engine, end } = await open()
  const locks = createLocks(engine, { wait: '20s' })
  const guard = fileGuard(store)
  try {
    let last: { token: bigint; guarded: string } | undefined
    for (let index = 0; index < count; index++) {
      last = await locks.using('order', async (lease: Lease) => ({
        token: lease.token,
        guarded: await guard.enter(lease).then(
          () => 'entered',
          (error: { code: string }) => error.code,
        ),
      }))
    }
    return last!
  } finally {
    await guard.close()
    await locks.close()
    await end()
  }
}

interface Subject {
  name: string
  start: () => Promise<ServerHandle>
  open: (server: ServerHandle) => Open
  /** Whether tokens go on above those that were granted after the copy. */
  goesOn: boolean
}

const SUBJECTS: Subject[] = [
  {
    name: 'PostgreSQL',
    start: () => startPostgres(),
    open: (server) => async () => {
      const pool = new Pool({ connectionString: server.url }).on('error', () => undefined)
      return { engine: postgres(pool), end: () => pool.end() }
    },
    goesOn: true,
  },
  {
    name: 'MariaDB',
    start: () => startMariadb(),
    open: (server) => async () => {
      const pool = createPool(server.url.replace('mysql:', 'mariadb:'))
      return { engine: mariadb(pool), end: () => pool.end() }
    },
    goesOn: true,
  },
  {
    name: 'MongoDB',
    start: () => startMongodb({ replicaSet: false }),
    open: (server) => async () => {
      const client = await MongoClient.connect(server.url)
      return { engine: mongodb(client.db('app')), end: () => client.close() }
    },
    goesOn: false,
  },
  {
    name: 'etcd',
    start: () => startEtcd(),
    open: (server) => async () => ({ engine: etcd([server.url]), end: async () => undefined }),
    goesOn: false,
  },
]

describe.concurrent(
  'a backup that is older than the last leases is put back, the clients are stopped',
  { timeout: 120_000 },
  () => {
    test.each(SUBJECTS)('$name: tokens go on above the old ones: $goesOn', async ({ start, open, goesOn }) => {
      await using server = await start()
      using backup = new Backup(server)
      const folder = createFolder('store')
      const store = path.join(folder, 'guard.db')
      const opened = open(server)
      try {
        await leases(opened, 1, store)
        await backup.take()
        const before = await leases(opened, 5, store)
        expect(before.guarded).toBe('entered')
        await backup.restore()
        const after = await leases(opened, 1, store)
        expect(after.token > before.token).toBe(goesOn)
        // A store that was not restored with it is safe all the same: it refuses.
        expect(after.guarded).toBe(goesOn ? 'entered' : 'STALE_TOKEN')
        // What the page says to do: let the numbers pass the old ones before the clients start.
        await until(async () => (await leases(opened, 5, store)).guarded === 'entered', {
          what: 'the store takes writes again',
        })
      } finally {
        removeFolder(folder)
      }
    })
  },
)
