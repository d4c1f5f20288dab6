import { copyFileSync, renameSync, rmSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { machineClock, type MachineClock } from '../../../src/clock.ts'
import { FileEngine } from '../../../src/engines/file/engine.ts'
import { file } from '../../../src/engines/file/index.ts'
import { loadSqlite } from '../../../src/engines/file/client.ts'
import { thisMachine, type Machine } from '../../../src/engines/file/machine.ts'
import { systemRandom } from '../../../src/random.ts'
import { leases, Place } from './setup.ts'

/** A machine can't be rebooted by a test: its boot and its clocks are handed in; the rest is as ever. */
function engineOf(path: string, machine: Partial<Machine>, clock: Partial<MachineClock> = {}): FileEngine {
  return new FileEngine({
    path,
    clock: { ...machineClock, ...clock },
    random: systemRandom,
    requestTimeoutMs: () => 1000,
    machine: () => ({ ...thisMachine(), self: null, ...machine }),
    endsWithProcess: true,
  })
}

function request(owner: string, resource = 'x', ttlMs = 30_000) {
  return { resources: [resource], owner, ttlMs }
}

async function granted(engine: FileEngine, owner: string, resource?: string): Promise<bigint> {
  const outcome = await engine.acquire(request(owner, resource))
  if (outcome.kind === 'refused') throw new Error(`refused: ${JSON.stringify(outcome)}`)
  return outcome.token
}

describe('after a reboot', () => {
  test('all leases and places in the queue are over, whatever the clock says', async () => {
    await using place = new Place()
    const before = engineOf(place.path, { boot: 'first' })
    const token = await granted(before, 'one')
    const controller = new AbortController()
    const waiting = before.enqueue(request('two'), controller.signal)
    waiting.catch(() => undefined)
    await expect.poll(async () => (await leases(engineOf(place.path, { boot: 'first' })))[0]?.waiters).toBe(1)
    const after = engineOf(place.path, { boot: 'second' })
    expect(await granted(after, 'three')).toBeGreaterThan(token)
    controller.abort()
    await expect(waiting).rejects.toBe(controller.signal.reason)
    await before.close()
    await after.close()
  })

  test('that is not known as one: leases are over where the clock is before their beginning, else with their ttl', async () => {
    await using place = new Place()
    let nowMs = 1_000_000
    const clock = { machineMs: () => nowMs }
    const before = engineOf(place.path, { boot: '' }, clock)
    await granted(before, 'one', 'x')
    await granted(before, 'two', 'y')
    const after = engineOf(place.path, { boot: '' }, clock)
    nowMs = 1_010_000
    expect(await after.acquire(request('three', 'x'))).toMatchObject({ kind: 'refused', remainingMs: 20_000 })
    nowMs = 5000
    expect(await after.acquire(request('three', 'x'))).toMatchObject({ kind: 'granted' })
    nowMs = 1_030_000
    expect(await after.acquire(request('four', 'y'))).toMatchObject({ kind: 'granted' })
    await before.close()
    await after.close()
  })

  test('after a loss of power, with the clock set back: tokens are greater than all that the disk never saw', async () => {
    await using place = new Place()
    const before = engineOf(place.path, { boot: 'first' })
    const tokens = [await granted(before, 'one', 'a')]
    // What is on the disk at the least is what was there at the last durable write: one copy stands for that.
    for (const suffix of ['', '-wal']) copyFileSync(place.path + suffix, `${place.path}${suffix}.disk`)
    for (const resource of ['b', 'c', 'd']) tokens.push(await granted(before, 'one', resource))
    await before.close()
    rmSync(`${place.path}-shm`, { force: true })
    for (const suffix of ['', '-wal']) renameSync(`${place.path}${suffix}.disk`, place.path + suffix)
    const after = engineOf(place.path, { boot: 'second' }, { wallMs: () => 0 })
    expect(await leases(engineOf(place.path, { boot: 'first' }))).toHaveLength(1)
    tokens.push(await granted(after, 'two', 'd'), await granted(after, 'two', 'e'))
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)))
    await after.close()
  })
})

describe('tokens', () => {
  test('of a clock that is beyond all measure do not follow it', async () => {
    await using place = new Place()
    const sane = engineOf(place.path, {})
    const token = await granted(sane, 'one', 'a')
    const mad = engineOf(place.path, {}, { wallMs: () => 8.6e15 })
    expect((await granted(mad, 'one', 'b')) - token).toBe(1n)
    await sane.close()
    await mad.close()
  })

  test('are reserved again when an hour of them is used up', async () => {
    await using place = new Place()
    let wallMs = Date.now()
    const engine = engineOf(place.path, {}, { wallMs: () => wallMs })
    let last = 0n
    for (let i = 0; i < 5; i++) {
      const token = await granted(engine, 'one', `r${i}`)
      expect(token).toBe(BigInt(wallMs * 1000))
      expect(token).toBeGreaterThan(last)
      last = token
      wallMs += 45 * 60_000
    }
    await engine.close()
  })
})

test('what nobody wants any more does not stay in the file for ever', async () => {
  await using place = new Place()
  const killed = await place.puppet()
  for (let i = 0; i < 20; i++) await killed.call('acquire', { resource: `job ${i}` })
  const waiter = await place.puppet()
  const waiting = waiter.call('acquire', { resource: 'job 0' })
  waiting.catch(() => undefined)
  await expect.poll(async () => (await leases(file(place.path), 'job 0'))[0]?.waiters).toBe(1)
  await waiter.worker.kill()
  await killed.worker.kill()
  const engine = engineOf(place.path, {}, { wallMs: () => Date.now() + 2 * 3_600_000 })
  await granted(engine, 'one', 'another job')
  const { connect } = await loadSqlite()
  const connection = connect(place.path)
  const rows = connection.prepare('SELECT resource FROM lease UNION ALL SELECT resource FROM queue').all()
  expect(rows.map(({ resource }) => resource)).toEqual(['another job'])
  connection.close()
  await engine.close()
})
