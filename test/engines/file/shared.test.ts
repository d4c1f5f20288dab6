import { readFileSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { file } from '../../../src/engines/file/index.ts'
import { createLocks } from '../../../src/locks.ts'
import type { Worker } from '../../../harness/child.ts'
import { until } from '../../../harness/until.ts'
import { leases, Place, type Message, type Puppet } from './setup.ts'

const WRITE = { resource: 'x', wait: '50s' }
const READ = { ...WRITE, shared: true }
/** Less than the time after which a place in the queue is lost that nobody takes. */
const SOON_MS = 4500

/** Processes whose leases outlive the test, unless their process is seen to be dead. */
function puppets(place: Place, count: number): Promise<Puppet[]> {
  return Promise.all(Array.from({ length: count }, () => place.puppet({ ttlMs: 120_000 })))
}

async function queued(place: Place, waiters: number): Promise<void> {
  await until(async () => (await leases(file(place.path), 'x'))[0]?.waiters === waiters, { what: `${waiters} waiters` })
}

async function tokenOf(puppet: Puppet, args: object): Promise<bigint> {
  return BigInt((await puppet.call('acquire', args))['token'] as string)
}

describe.concurrent('readers and writers of several processes', () => {
  test('come in the order of the queue: readers together, writers alone', async () => {
    await using place = new Place()
    const [first, writer, second, third, last] = (await puppets(place, 5)) as [Puppet, Puppet, Puppet, Puppet, Puppet]
    const read = await tokenOf(first, READ)
    const written = tokenOf(writer, WRITE)
    await queued(place, 1)
    const readTogether = [tokenOf(second, READ)]
    await queued(place, 2)
    readTogether.push(tokenOf(third, READ))
    await queued(place, 3)
    const writtenLast = tokenOf(last, WRITE)
    await queued(place, 4)

    await first.call('release', READ)
    expect(await written).toBeGreaterThan(read)
    expect(await leases(file(place.path), 'x')).toMatchObject([{ token: await written, waiters: 3 }])
    await writer.call('release', WRITE)
    const [one, other] = await Promise.all(readTogether)
    expect(one).toBeGreaterThan(await written)
    expect(other).toBe(one)
    expect(await leases(file(place.path), 'x')).toMatchObject([
      { shared: true, waiters: 1 },
      { shared: true, waiters: 1 },
    ])
    await second.call('release', READ)
    expect(await leases(file(place.path), 'x')).toMatchObject([{ shared: true, waiters: 1 }])
    await third.call('release', READ)
    expect(await writtenLast).toBeGreaterThan(one!)
  })

  test('a reader that is killed no longer keeps a writer out, and one that lives does', async () => {
    await using place = new Place()
    const [first, second, writer] = (await puppets(place, 3)) as [Puppet, Puppet, Puppet]
    await first.call('acquire', READ)
    await second.call('acquire', READ)
    const written = tokenOf(writer, WRITE)
    await queued(place, 1)
    await second.worker.kill()
    await until(async () => (await leases(file(place.path), 'x')).length === 1, { what: 'one reader' })
    await queued(place, 1)
    const releasedMs = performance.now()
    await first.call('release', READ)
    await written
    expect(performance.now() - releasedMs).toBeLessThan(SOON_MS)
    expect(await leases(file(place.path), 'x')).toMatchObject([{ token: await written }])
  })

  test('a writer that is killed in the queue no longer keeps readers out', async () => {
    await using place = new Place()
    const [first, second, writer, third] = (await puppets(place, 4)) as [Puppet, Puppet, Puppet, Puppet]
    await first.call('acquire', READ)
    // It is killed before it answers.
    writer.call('acquire', WRITE).catch(() => undefined)
    await queued(place, 1)
    const read = tokenOf(second, READ)
    await queued(place, 2)
    expect(await third.call('tryAcquire', READ)).toMatchObject({ granted: false })
    const killedMs = performance.now()
    await writer.worker.kill()
    await read
    expect(performance.now() - killedMs).toBeLessThan(SOON_MS)
    expect(await third.call('tryAcquire', READ)).toMatchObject({ granted: true })
    expect(await leases(file(place.path), 'x')).toHaveLength(3)
  })

  test('a writer that is stopped in the queue is passed over when its turn has come, and waits again', async () => {
    await using place = new Place()
    const [first, second, writer] = (await puppets(place, 3)) as [Puppet, Puppet, Puppet]
    await first.call('acquire', READ)
    const written = tokenOf(writer, WRITE)
    await queued(place, 1)
    const read = tokenOf(second, READ)
    await queued(place, 2)
    await writer.worker.pause()
    const releasedMs = performance.now()
    await first.call('release', READ)
    await read
    expect(performance.now() - releasedMs).toBeLessThan(SOON_MS)
    await writer.worker.resume()
    await queued(place, 1)
    await second.call('release', READ)
    expect(await written).toBeGreaterThan(await read)
  })
})

test('24 readers and writers are killed at any moment: never a writer beside anyone, tokens in order', async () => {
  await using place = new Place()
  const log = `${place.folder}/log`
  writeFileSync(log, '')
  const startOne = (kind: string): Worker<Message> =>
    place.worker('endless.mjs', { args: ['file', '60000', log, kind] })
  const workers = ['reader', 'writer', 'reader', 'writer', 'reader'].map((kind) => ({ kind, worker: startOne(kind) }))
  const lines = (): string[] => readFileSync(log, 'utf8').trim().split('\n')
  const countOf = (kind: string): number => lines().filter((line) => line.includes(kind)).length
  for (const { worker } of workers) {
    await worker.next(({ type }) => type === 'ready', { withinMs: 40_000, what: 'sign of life' })
  }
  for (let kills = 0; kills < 24; kills++) {
    const { kind, worker } = workers.shift()!
    await worker.kill()
    workers.push({ kind, worker: startOne(kind) })
    // The others go on, readers and writers, whatever the victim was doing.
    const before = { reader: countOf('reader'), writer: countOf('writer') }
    await until(() => countOf('reader') > before.reader + 2 && countOf('writer') > before.writer + 2, {
      what: 'rounds of the survivors',
      everyMs: 1,
    })
  }
  for (const { worker } of workers) await worker.kill()

  const inside = new Map<string, string>()
  const wrong: string[] = []
  let written = 0
  let highest = 0
  let together = 0
  for (const [index, line] of lines().entries()) {
    const [what, token, kind, pid] = line.split(' ') as [string, string, string, string]
    if (what === 'leave') {
      // Whoever came in meanwhile and kept it from being alone, or from sharing, has ended its stay here.
      if (!inside.delete(pid)) wrong.push(`${index}: ${line}`)
      continue
    }
    // Who is still inside was killed, if this one is in order: it must never leave.
    for (const [other, theirs] of inside) if (kind === 'writer' || theirs === 'writer') inside.delete(other)
    if (Number(token) <= (kind === 'writer' ? highest : written)) wrong.push(`${index}: ${line} after ${highest}`)
    if (kind === 'writer') written = Number(token)
    highest = Math.max(highest, Number(token))
    inside.set(pid, kind)
    together = Math.max(together, inside.size)
  }
  expect(wrong).toEqual([])
  expect(together).toBeGreaterThan(1)
  expect(countOf('writer')).toBeGreaterThan(100)
  await using locks = createLocks(file(place.path))
  const findings = await locks.check()
  expect(findings.find(({ id }) => id === 'file/integrity')).toMatchObject({ severity: 'ok' })
})
