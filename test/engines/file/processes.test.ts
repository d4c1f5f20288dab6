import { chmodSync, readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { Finding } from '../../../src/engine.ts'
import { file } from '../../../src/engines/file/index.ts'
import { loadSqlite } from '../../../src/engines/file/client.ts'
import { thisMachine } from '../../../src/engines/file/machine.ts'
import { createLocks } from '../../../src/locks.ts'
import { isAvailable } from '../../../harness/binaries.ts'
import { shiftedClock } from '../../../harness/faults/clock.ts'
import { until } from '../../../harness/until.ts'
import { AS_NOBODY, hasNamespaces, leases, Place, unshared, unsharedAfter, type Puppet } from './setup.ts'

const x = { resource: 'x' }

/** Until so many wait in the file for it. */
async function queued(place: Place, waiters: number): Promise<void> {
  await until(async () => (await leases(file(place.path), 'x'))[0]?.waiters === waiters, { what: `${waiters} waiters` })
}

/** A holder, and others who wait in a known order. */
async function line(place: Place, length: number): Promise<[Puppet, ...Puppet[]]> {
  const puppets = await Promise.all(Array.from({ length: length + 1 }, () => place.puppet()))
  await puppets[0]!.call('acquire', x)
  return puppets as [Puppet, ...Puppet[]]
}

async function inOrder(place: Place, waiters: readonly Puppet[]): Promise<Promise<bigint>[]> {
  const turns: Promise<bigint>[] = []
  for (const waiter of waiters) {
    turns.push(waiter.call('turn', x).then(({ token }) => BigInt(token as string)))
    await queued(place, turns.length)
  }
  return turns
}

describe.concurrent('the queue', () => {
  test('serves processes in the order in which they came, and nobody goes past it', async () => {
    await using place = new Place()
    const [holder, ...waiters] = await line(place, 4)
    const turns = await inOrder(place, waiters)
    expect(await holder.call('release', x)).toMatchObject({ ours: true })
    // Just behind a release: the resource may be free at this moment, but others wait for it.
    await using late = createLocks(file(place.path))
    const last = await late.acquire('x')
    const tokens = [...(await Promise.all(turns)), last.token]
    expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)))
  })

  test('refuses who does not wait while others do, also when nobody holds the resource; not for ever', async () => {
    await using place = new Place()
    const engine = file(place.path)
    const request = { resources: ['x'], owner: 'late', ttlMs: 1000 }
    await engine.acquire(request)
    await engine.release({ ...request, token: 0n })
    // One who waits and lives, but does not take its turn.
    const { boot, self } = thisMachine()
    const connection = (await loadSqlite()).connect(place.path)
    connection.exec(
      `INSERT INTO ticket VALUES (1, 'idle', 0, '${boot}', 0, NULL, '${self}'); INSERT INTO queue VALUES ('x', 1)`,
    )
    connection.close()
    const refusal = await engine.acquire(request)
    expect(refusal).toMatchObject({ kind: 'refused', reason: 'held' })
    expect(refusal).not.toHaveProperty('holder')
    expect(await leases(file(place.path))).toEqual([])
    await until(async () => (await engine.acquire(request)).kind === 'granted', {
      what: 'the end of its turn',
      withinMs: 40_000,
    })
    await engine.close()
  })

  test('goes on when one of the waiters is killed', async () => {
    await using place = new Place()
    const [holder, first, second, third] = await line(place, 3)
    const turns = await inOrder(place, [first!, second!, third!])
    turns[0]!.catch(() => undefined)
    turns[1]!.catch(() => undefined)
    await first!.worker.kill()
    await second!.worker.kill()
    const releasedMs = performance.now()
    await holder.call('release', x)
    await turns[2]
    // Not by its turn being over, which would take five seconds for each.
    expect(performance.now() - releasedMs).toBeLessThan(4500)
    expect(await leases(file(place.path))).toEqual([])
  })

  test('passes over waiters that are stopped; they wait again when they go on', async () => {
    await using place = new Place()
    const [holder, first, second, third] = await line(place, 3)
    const turns = await inOrder(place, [first!, second!, third!])
    await first!.worker.pause()
    await second!.worker.pause()
    const releasedMs = performance.now()
    await holder.call('release', x)
    const token = await turns[2]!
    expect(performance.now() - releasedMs).toBeLessThan(4500)
    await first!.worker.resume()
    await second!.worker.resume()
    expect(await turns[0]!).toBeGreaterThan(token)
    expect(await turns[1]!).toBeGreaterThan(token)
  })

  test('forgets who gave up, also if the file was busy just then', async () => {
    await using place = new Place()
    await using holder = createLocks(file(place.path))
    await holder.acquire('x')
    const engine = file(place.path, { requestTimeout: 50 })
    const giveUp = new AbortController()
    const request = { resources: ['x'], owner: 'impatient', ttlMs: 1000 }
    const turn = engine.enqueue!(request, giveUp.signal)
    await queued(place, 1)
    const blocker = (await loadSqlite()).connect(place.path)
    blocker.exec('BEGIN IMMEDIATE')
    giveUp.abort()
    await expect(turn).rejects.toThrow('aborted')
    await queued(place, 1)
    blocker.exec('ROLLBACK')
    blocker.close()
    await queued(place, 0)
    await engine.close()
  })

  test('of several resources waits for all of them, and holds none meanwhile', async () => {
    await using place = new Place()
    await using one = createLocks(file(place.path))
    await using two = createLocks(file(place.path))
    const a = await one.acquire('a')
    const both = two.acquire(['a', 'b'], { wait: '20s' })
    await until(async () => (await leases(file(place.path), 'a'))[0]?.waiters === 1, { what: 'a waiter' })
    expect(await leases(file(place.path), 'b')).toEqual([])
    // Who comes later for b alone waits behind.
    const b = one.acquire('b', { wait: '20s' })
    await a.release()
    const first = await both
    await first.release()
    expect((await b).token).toBeGreaterThan(first.token)
  })
})

/** So long that a busy machine does not miss it between two steps of a test. */
const SHORT_TTL_MS = 5000
const AT_LEAST_MS = 6000

describe.concurrent('a holder', () => {
  test.skipIf(AS_NOBODY.length === 0)('of another user lives, though it may not be signalled', async () => {
    await using place = new Place()
    await using locks = createLocks(file(place.path))
    await locks.acquire('x')
    chmodSync(place.folder, 0o777)
    for (const suffix of ['', '-wal', '-shm']) chmodSync(place.path + suffix, 0o666)
    const other = await place.puppet({ under: AS_NOBODY })
    expect(await other.call('tryAcquire', x)).toMatchObject({ granted: false })
    expect(await other.call('tryAcquire', { resource: 'y' })).toMatchObject({ granted: true })
    expect(await locks.tryAcquire('y')).toBeNull()
  })

  test('that was stopped lives: its lease ends with the ttl, and it is told when it goes on', async () => {
    await using place = new Place()
    const ttlMs = SHORT_TTL_MS
    const holder = await place.puppet({ ttlMs })
    const { token } = await holder.call('acquire', x)
    await holder.worker.pause()
    const stoppedMs = performance.now()
    await using locks = createLocks(file(place.path))
    const lease = await locks.acquire('x', { wait: '20s' })
    // Had, or renewed, a third of the ttl before, or a bit more.
    expect(performance.now() - stoppedMs).toBeGreaterThan(ttlMs / 3)
    expect(lease.token).toBeGreaterThan(BigInt(token as string))
    await holder.worker.resume()
    await until(async () => (await holder.call('state', x))['aborted'], { what: 'the signal' })
    expect(lease.held).toBe(true)
  })

  test('that is dead but not yet collected by its parent is dead', async () => {
    await using place = new Place()
    // A shell that becomes `sleep` never asks how its child ended.
    const under = ['sh', '-c', '"$@" & exec sleep 60', 'sh']
    const holder = await place.puppet({ under, ttlMs: 60_000 })
    await holder.call('acquire', x)
    process.kill(childOf(holder.worker.pid), 'SIGKILL')
    await using locks = createLocks(file(place.path))
    await using lease = await locks.acquire('x', { wait: '20s' })
    expect(lease.held).toBe(true)
  })

  test('whose process ended without a release holds nothing any more, unless it left the lease on purpose', async () => {
    await using place = new Place()
    const [forgetful, job] = [await place.puppet({ ttlMs: 60_000 }), await place.puppet({ ttlMs: 1000 })]
    await forgetful.call('acquire', x)
    const askedMs = performance.now()
    expect(await job.call('once', { resource: 'job', atLeast: AT_LEAST_MS })).toMatchObject({ ran: true })
    await forgetful.worker.kill('SIGTERM')
    await job.worker.kill('SIGTERM')
    await using locks = createLocks(file(place.path))
    await using lease = await locks.tryAcquire('x')
    expect(lease?.held).toBe(true)
    expect(await locks.tryAcquire('job')).toBeNull()
    await locks.acquire('job', { wait: '20s' })
    expect(performance.now() - askedMs).toBeGreaterThan(AT_LEAST_MS - 2)
  })

  test('whose process is killed in the middle of a job of once keeps the job until atLeast is over', async () => {
    await using place = new Place()
    const [started, renewed] = [await place.puppet({ ttlMs: 1000 }), await place.puppet({ ttlMs: 1000 })]
    const askedMs = performance.now()
    await started.call('onceForever', { resource: 'started', atLeast: AT_LEAST_MS })
    await renewed.call('onceForever', { resource: 'renewed', atLeast: 600, ttl: SHORT_TTL_MS })
    await started.worker.kill('SIGKILL')
    await using locks = createLocks(file(place.path))
    expect(await locks.once('started', {}, () => 1)).toEqual({ ran: false })
    await locks.acquire('started', { wait: '20s' })
    expect(performance.now() - askedMs).toBeGreaterThan(AT_LEAST_MS - 2)
    // After that time, and with the next renewal, the job ends with its process again.
    expect(await locks.once('renewed', {}, () => 1)).toEqual({ ran: false })
    await renewed.worker.kill('SIGKILL')
    expect(await locks.once('renewed', {}, () => 1)).toEqual({ ran: true, value: 1 })
  })

  test('whose work may outlive it holds until its ttl is over', async () => {
    await using place = new Place()
    const holder = await place.puppet({ ttlMs: SHORT_TTL_MS, engine: { deadHolder: 'after ttl' } })
    await holder.call('acquire', x)
    await holder.worker.kill()
    const killedMs = performance.now()
    await using locks = createLocks(file(place.path))
    expect(await locks.tryAcquire('x')).toBeNull()
    await locks.acquire('x', { wait: '20s' })
    expect(performance.now() - killedMs).toBeGreaterThan(SHORT_TTL_MS / 3)
  })
})

function childOf(pid: number): number {
  const [child] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')
  return Number(child)
}

describe.concurrent('time', () => {
  test.skipIf(!isAvailable('clock-shift'))('is not the wall clock: setting that ends no lease', async () => {
    await using place = new Place()
    await using locks = createLocks(file(place.path), { ttl: '30s' })
    const clock = shiftedClock(place.folder)
    const puppet = await place.puppet({ env: clock.env })
    const lease = await locks.acquire('x')
    const tokens = [Number(lease.token)]
    for (const offsetMs of [86_400_000, -86_400_000]) {
      clock.shift(offsetMs)
      expect(await puppet.call('tryAcquire', x)).toMatchObject({ granted: false })
      const { token } = await puppet.call('acquire', { resource: 'y' })
      tokens.push(Number(token))
      await puppet.call('release', { resource: 'y' })
    }
    // The clock was really set: the first of them is a day ahead, the last goes on from there.
    expect(tokens[1]! - tokens[0]!).toBeGreaterThan(80_000e6)
    expect(tokens[2]! - tokens[1]!).toBe(1)
  })
})

/** A holder here is not seen as dead there, nor the other way round. */
async function expectExclusion(place: Place, there: Puppet, here: Puppet): Promise<void> {
  for (const [one, other] of [
    [here, there],
    [there, here],
  ] as const) {
    expect(await one.call('acquire', x)).toMatchObject({ granted: true })
    expect(await other.call('tryAcquire', x)).toMatchObject({ granted: false })
    expect(await leases(file(place.path), 'x')).toMatchObject([{ remainingMs: expect.toSatisfy((ms) => ms <= 30_000) }])
    expect(await one.call('release', x)).toMatchObject({ ours: true })
  }
}

describe.skipIf(!hasNamespaces)('containers that share the file', { concurrent: true }, () => {
  const PID_NAMESPACE = ['--pid', '--fork', '--kill-child']

  test.each([
    ['process ids of their own', unshared(...PID_NAMESPACE, '--mount-proc')],
    ['process ids of their own, but the /proc of the machine', unshared(...PID_NAMESPACE)],
    ['a monotonic clock of their own, ahead', unshared('--time', '--monotonic', '100000', '--fork', '--kill-child')],
    [
      'a boot id of their own',
      unsharedAfter(
        'cat /proc/sys/kernel/random/uuid > "$RINGFENCE_FILE.boot" && mount --bind "$RINGFENCE_FILE.boot" /proc/sys/kernel/random/boot_id',
        '--mount',
      ),
    ],
  ])('exclude each other: %s', async (_what, under) => {
    await using place = new Place()
    await expectExclusion(place, await place.puppet({ under }), await place.puppet())
  })

  test('with process ids of their own: a dead holder is noticed after its ttl', async () => {
    await using place = new Place()
    const there = await place.puppet({ under: unshared(...PID_NAMESPACE, '--mount-proc'), ttlMs: SHORT_TTL_MS })
    await there.call('acquire', x)
    await there.worker.kill()
    await using locks = createLocks(file(place.path))
    expect(await locks.tryAcquire('x')).toBeNull()
    await using lease = await locks.acquire('x', { wait: '20s' })
    expect(lease.held).toBe(true)
  })

  test('the doctor says what of the machine is hidden', async () => {
    await using place = new Place()
    const blind = await place.puppet({ under: unshared(...PID_NAMESPACE) })
    const hidden = await place.puppet({
      under: unsharedAfter('mount --bind /etc/hostname /proc/sys/kernel/random/boot_id', '--mount'),
    })
    expect(await severities(blind)).toMatchObject({ 'file/processes': 'note', 'file/boot': 'ok' })
    expect(await severities(hidden)).toMatchObject({ 'file/processes': 'ok', 'file/boot': 'note' })
  })

  test('without a watch to be had, a release is noticed by looking', async () => {
    await using place = new Place()
    const under = unsharedAfter('echo 0 > /proc/sys/user/max_inotify_instances', '--user')
    const waiter = await place.puppet({ under })
    expect(await severities(waiter)).toMatchObject({ 'file/wake-ups': 'note' })
    await using locks = createLocks(file(place.path))
    // Not at the next full look, after a second. A busy machine may be late, but not every time.
    let quickestMs = Infinity
    for (let round = 0; round < 10 && quickestMs >= 800; round++) {
      const lease = await locks.acquire('x', { wait: '20s' })
      const turn = waiter.call('turn', x)
      await queued(place, 1)
      await pause(50)
      const releasedMs = performance.now()
      await lease.release()
      expect(await turn).toMatchObject({ type: 'done' })
      quickestMs = Math.min(quickestMs, performance.now() - releasedMs)
    }
    expect(quickestMs).toBeLessThan(800)
  })
})

async function severities(puppet: Puppet): Promise<Record<string, string>> {
  const { findings } = (await puppet.call('check')) as unknown as { findings: readonly Finding[] }
  return Object.fromEntries(findings.map(({ id, severity }) => [id, severity]))
}
