import { readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { Finding } from '../../../src/engine.ts'
import { file } from '../../../src/engines/file/index.ts'
import { loadSqlite } from '../../../src/engines/file/client.ts'
import { createLocks } from '../../../src/locks.ts'
import type { Worker } from '../../../harness/child.ts'
import { isAvailable, program } from '../../../harness/binaries.ts'
import { until } from '../../../harness/until.ts'
import { faultTrials, processTrials, type BreakableServers } from '../trials.ts'
import { leases, Place, type Message } from './setup.ts'

describe.concurrent('file', () => {
  // The ttl is far longer than the next one waits: it gets in because the holder is seen to be dead.
  processTrials({ connector: 'file', start, nextWithinMs: 10_000, ttlMs: 60_000 })
  faultTrials({ start, survivesRestart: true })
})

/** Frozen: someone does not end its transaction. Killed: the folder is gone from where it was. */
async function start(): Promise<BreakableServers> {
  const place = new Place()
  const { connect } = await loadSqlite()
  let blocker: ReturnType<typeof connect> | undefined
  return {
    env: { RINGFENCE_FILE: place.path },
    engine: async () => file(place.path),
    async freeze() {
      blocker = connect(place.path)
      blocker.exec('BEGIN IMMEDIATE')
    },
    async thaw() {
      blocker?.close()
    },
    kill: async () => renameSync(place.folder, `${place.folder}-away`),
    restart: async () => renameSync(`${place.folder}-away`, place.folder),
    [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
  }
}

const isType = (type: string) => (message: Message) => message.type === type

test.skipIf(!isAvailable('node'))(
  'a process with node:sqlite and one with libsql exclude each other on the same file',
  async () => {
    await using place = new Place()
    const args = ['file', '30000', place.folder, '100']
    const workers = [
      place.worker('racer.mjs', { args }),
      place.worker('racer.mjs', { args, node: program('node').path }),
    ]
    for (const worker of workers) await worker.next(isType('ready'), { withinMs: 40_000, what: 'sign of life' })
    for (const worker of workers) worker.send({ type: 'go' })
    for (const worker of workers) await worker.next(isType('done'), { withinMs: 50_000, what: 'end of its rounds' })
    const visits = readFileSync(`${place.folder}/log`, 'utf8').trim().split('\n')
    expect(visits).toHaveLength(200)
    const tokens = visits.map((visit) => Number(visit.split(' ')[1]))
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b))
    const pids = visits.map((visit) => visit.split(' ')[0])
    expect(pids.filter((pid, index) => index > 0 && pid !== pids[index - 1]).length).toBeGreaterThan(3)
    const other = await place.puppet({ node: program('node').path })
    const { findings } = (await other.call('check')) as unknown as { findings: readonly Finding[] }
    expect(findings[0]).toMatchObject({ id: 'file/open', found: expect.stringContaining('node:sqlite') })
    // Node's own word about its SQLite is not passed on to everyone who uses a lock.
    expect(workers[1]!.stderr).toBe('')
  },
)

test('24 processes are killed at any moment: never two inside, tokens grow, the file stays whole', async () => {
  await using place = new Place()
  const log = `${place.folder}/log`
  writeFileSync(log, '')
  const args = ['file', '60000', log]
  const startOne = (): Worker<Message> => place.worker('endless.mjs', { args })
  const workers = Array.from({ length: 4 }, startOne)
  const lines = (): string[] => readFileSync(log, 'utf8').trim().split('\n')
  for (const worker of workers) await worker.next(isType('ready'), { withinMs: 40_000, what: 'sign of life' })
  for (let kills = 0; kills < 24; kills++) {
    const victim = workers.shift()!
    await victim.kill()
    workers.push(startOne())
    // The others go on, whatever the victim was doing.
    const before = lines().length
    await until(() => lines().length > before + 4, { what: 'rounds of the survivors', everyMs: 1 })
  }
  for (const worker of workers) await worker.kill()
  const visits = lines().map((line) => line.split(' '))
  const tokens = visits.filter(([what]) => what === 'enter').map(([, token]) => Number(token))
  expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b))
  expect(tokens.length).toBeGreaterThan(100)
  // Nobody leaves after someone else has entered.
  const late = visits.filter(([what, token], index) => what === 'leave' && visits[index - 1]?.[1] !== token)
  expect(late).toEqual([])
  await using locks = createLocks(file(place.path))
  const findings = await locks.check()
  expect(findings.find(({ id }) => id === 'file/integrity')).toMatchObject({ severity: 'ok' })
  await using lease = await locks.acquire('section')
  expect(Number(lease.token)).toBeGreaterThan(tokens.at(-1)!)
})

test('processes that make the file at the same time make one', async () => {
  await using place = new Place()
  const puppets = await Promise.all(Array.from({ length: 4 }, () => place.puppet()))
  const grants = await Promise.all(puppets.map((puppet, index) => puppet.call('tryAcquire', { resource: `r${index}` })))
  expect(new Set(grants.map((grant) => grant['token'])).size).toBe(4)
  expect(await leases(file(place.path))).toHaveLength(4)
  expect(readdirSync(place.folder).filter((name) => name.endsWith('.new'))).toEqual([])
})
