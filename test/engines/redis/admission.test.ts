import { describe, expect, test } from 'vitest'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { until } from '../../../harness/until.ts'
import { allAnswer, copyOf, heldOnTwo, refused } from './admission-quorum.ts'
import { restartEmpty, startQuorum } from './faults-quorum.ts'

const HOUR_MS = 3_600_000

describe.concurrent('nodes without persistence restart one after the other while a lease is held', () => {
  test('a process that tries after each of them gets nothing', async () => {
    await using quorum = await startQuorum({}, 3)
    const [holder, rival] = [quorum.locks(), quorum.locks()]
    await using lease = await holder.acquire('order')
    for (const node of quorum.nodes) {
      await restartEmpty(node)
      await allAnswer(rival)
      expect(await refused(rival)).toBe(true)
    }
    expect(lease.held).toBe(true)
  })

  test('a process that used the quorum before, and did not look in between, gets nothing', async () => {
    await using quorum = await startQuorum({}, 3)
    const [holder, rival] = [quorum.locks(), quorum.locks()]
    await (await rival.acquire('other')).release()
    await using lease = await holder.acquire('order')
    for (const node of quorum.nodes) await restartEmpty(node)
    await allAnswer(rival)
    expect(await refused(rival)).toBe(true)
    expect(lease.held).toBe(true)
  })

  test('a process that starts after the last one sees what the others have left, and gets nothing either', async () => {
    await using quorum = await startQuorum({}, 3)
    const [holder, witness] = [quorum.locks(), quorum.locks()]
    await using lease = await holder.acquire('order')
    for (const node of quorum.nodes) {
      await restartEmpty(node)
      expect(await refused(witness)).toBe(true)
    }
    const fresh = quorum.locks()
    expect(await refused(fresh)).toBe(true)
    expect(lease.held).toBe(true)
  })

  test('a holder that renews leaves a trace on each of them by itself', async () => {
    await using quorum = await startQuorum({}, 3)
    const holder = quorum.locks({ ttl: '9s' })
    await using _lease = await holder.acquire('order')
    const [first, ...others] = quorum.nodes
    await restartEmpty(first!)
    const level = (): Promise<string> => first!.cli('HGET', 'ringfence:stamp', 'since.level')
    await until(async () => (await level()) === '2', {
      what: 'a trace on the node that restarted',
      withinMs: 20_000,
    })
    for (const node of others) await restartEmpty(node)
    expect(await refused(quorum.locks())).toBe(true)
  })
})

describe.concurrent('a new deployment', () => {
  test('lets everyone in at once, however many processes start at the same moment', async () => {
    await using quorum = await startQuorum({}, 3)
    const processes = Array.from({ length: 8 }, () => quorum.locks())
    const leases = await Promise.all(
      processes.map((locks, index) => locks.acquire(`own ${index}`, { wait: '10s', ttl: '30s' })),
    )
    expect(leases.every(({ held }) => held)).toBe(true)
    for (const node of quorum.nodes) expect(await node.cli('HGET', 'ringfence:stamp', 'epoch:61000')).toContain(' ')
  })

  test('of which a node does not answer yet is let in as soon as it does', async () => {
    await using quorum = await startQuorum({}, 3)
    await quorum.nodes[2]!.kill()
    const locks = quorum.locks()
    await expect(locks.acquire('order', { wait: 0 })).rejects.toThrow(/remembers nothing of this quorum/)
    await quorum.nodes[2]!.restart()
    await using lease = await locks.acquire('order', { wait: '20s' })
    expect(lease.held).toBe(true)
  })
})

describe.concurrent('a node replaced by an empty one that has been up for long', () => {
  test.each(['auto', 'strict'] as const)('does not vote with restart: %s', async (restart) => {
    await using quorum = await startQuorum({ clockShift: true }, 3)
    const { holder, proxy } = await heldOnTwo(quorum)
    await using _proxy = proxy
    const lease = await holder.acquire('order')
    const [spare] = quorum.nodes
    await spare!.kill()
    spare!.shiftClock(-HOUR_MS)
    await spare!.restart({ empty: true })
    spare!.shiftClock(0)
    expect(await spare!.cli('INFO', 'server')).toMatch(/uptime_in_seconds:3[56]\d\d/)

    const rival = quorum.locks({}, { restart })
    expect(await refused(rival)).toBe(true)
    expect(lease.held).toBe(true)
    // Another lease of the rival rests on the other two, so it was not refused for that alone.
    expect((await rival.tryAcquire('another'))?.held).toBe(true)
    expect(await spare!.cli('HGET', 'ringfence:stamp', 'since.ms')).toMatch(/^\d+$/)
  })

  test('does not vote either when it has an old copy of the data', async () => {
    await using quorum = await startQuorum({ clockShift: true, durable: true }, 3)
    const [spare] = quorum.nodes
    const { holder, proxy } = await heldOnTwo(quorum)
    await using _proxy = proxy
    await using copy = await copyOf(spare!)
    const lease = await holder.acquire('order')
    await spare!.kill()
    copy.putBack()
    spare!.shiftClock(-HOUR_MS)
    await spare!.restart()
    spare!.shiftClock(0)
    expect(await refused(quorum.locks({}, { restart: 'strict' }))).toBe(true)
    expect(lease.held).toBe(true)
  })
})

describe.concurrent('a node that forgets nothing', () => {
  test('does not vote when an older copy of its data was put back', async () => {
    await using quorum = await startQuorum({ clockShift: true, durable: true }, 3)
    const [restored] = quorum.nodes
    // An hour passes between the copy and what follows.
    restored!.shiftClock(-HOUR_MS)
    const { holder, proxy } = await heldOnTwo(quorum)
    await using _proxy = proxy
    await using copy = await copyOf(restored!)
    restored!.shiftClock(0)
    const lease = await holder.acquire('order')
    await restored!.kill()
    copy.putBack()
    await restored!.restart()

    const rival = quorum.locks()
    expect(await refused(rival)).toBe(true)
    expect(lease.held).toBe(true)
    expect((await rival.tryAcquire('another'))?.held).toBe(true)
  })
})

test.concurrent('a node that restarts between the look at it and the load gives its vote to nobody', async () => {
  await using quorum = await startQuorum({}, 3)
  const ports = quorum.nodes.map(({ port }) => port)
  const { holder, proxy } = await heldOnTwo(quorum)
  await using _proxy = proxy
  await using line = await startProxy(ports[0]!)
  const [rival, slow] = [quorum.locks(), quorum.locks({}, {}, [line.port, ports[1]!, ports[2]!])]
  for (const locks of [rival, slow]) await (await locks.acquire('warm-up')).release()
  const lease = await holder.acquire('order')

  const [node] = quorum.nodes
  await node!.cli('SCRIPT', 'FLUSH')
  line.dropRequests('LOAD')
  const trying = slow.tryAcquire('another').catch(() => null)
  await until(() => line.dropped > 0, { what: 'the load is on its way' })
  await restartEmpty(node!)
  // Its driver sends the load again, to the new run; what would undo that is held back.
  line.dropRequests('server')
  await until(async () => /cmdstat_script\|load:calls=[1-9]/.test(await node!.cli('INFO', 'commandstats')), {
    what: 'the load has arrived',
  })
  expect(await refused(rival)).toBe(true)
  expect(lease.held).toBe(true)
  line.dropRequests(false)
  await trying
  expect(await refused(rival)).toBe(true)
  expect(lease.held).toBe(true)
})

test.concurrent('a node that restarts before the load arrives is not let in by what was seen of its former run', async () => {
  await using quorum = await startQuorum({}, 3)
  const ports = quorum.nodes.map(({ port }) => port)
  const { holder, proxy } = await heldOnTwo(quorum)
  await using _proxy = proxy
  await using line = await startProxy(ports[0]!)
  const rival = quorum.locks({}, { requestTimeout: '10s' }, [line.port, ports[1]!, ports[2]!])
  await (await rival.acquire('warm-up')).release()
  const [node] = quorum.nodes
  // What the node has after the restart: its stamp, and not the lease.
  await node!.cli('SAVE')
  const lease = await holder.acquire('order')
  const epoch = (): Promise<string> => node!.cli('HGET', 'ringfence:stamp', 'epoch:61000')
  const former = await epoch()

  await node!.cli('SCRIPT', 'FLUSH')
  line.dropRequests('LOAD')
  // The third node votes for the rival: with the first one it would have a majority.
  const trying = rival.tryAcquire('order').catch(() => null)
  await until(() => line.dropped > 0, { what: 'the load is on its way' })
  await node!.kill()
  line.dropRequests(false)
  // Its driver sends the load again, to the new run, and what would let the node in follows.
  await node!.restart()
  const arrived = async (command: string): Promise<boolean> =>
    new RegExp(`cmdstat_${command}:calls=[1-9]`).test(await node!.cli('INFO', 'commandstats'))
  await until(() => arrived('script\\|load'), { what: 'the load has arrived' })
  await until(() => arrived('eval'), { what: 'what follows it has arrived' })
  expect(await trying).toBeNull()
  expect(await refused(rival)).toBe(true)
  expect(lease.held).toBe(true)
  expect(former).not.toBe('')
  expect(await epoch()).toBe(former)
})

describe.concurrent('where the stamp can not be written', () => {
  test.each([
    { why: 'its key is not allowed', rule: '~lock:* ~ringfence:fence:* &* +@all', says: /ringfence:stamp.*NOPERM/ },
    { why: 'HSET is not allowed', rule: '~* &* +@all -hset', says: /ringfence:stamp.*can't run this command/ },
  ])('because $why, nothing is flushed, nothing piles up, and the error says what to allow', async ({ rule, says }) => {
    await using quorum = await startQuorum({ acl: [`app on nopass ${rule}`] }, 3)
    const [node] = quorum.nodes
    const foreign = await node!.cli('SCRIPT', 'LOAD', 'return "another application"')
    const addresses = quorum.nodes.map(({ port }) => `redis://app:any@127.0.0.1:${port}`)
    const locks = quorum.locks({}, { prefix: 'lock:' }, addresses)
    for (let attempt = 0; attempt < 20; attempt++) {
      await expect(locks.acquire('order', { wait: 0 })).rejects.toThrow(says)
    }
    expect(await node!.cli('INFO', 'commandstats')).not.toMatch(/script\|flush/)
    expect(await node!.cli('SCRIPT', 'EXISTS', foreign)).toBe('1')
    const [, scripts] = /number_of_cached_scripts:(\d+)/.exec(await node!.cli('INFO', 'memory'))!
    expect(Number(scripts)).toBeLessThan(6)
    await expect(locks.acquire('order', { wait: 0 })).rejects.toThrow(/allow this user .*~ringfence:stamp/)
  })
})

test.concurrent('scripts flushed by an operator are loaded anew, and everybody goes on', async () => {
  await using quorum = await startQuorum({}, 3)
  const processes = [quorum.locks(), quorum.locks()]
  for (let round = 0; round < 3; round++) {
    for (const locks of processes) await (await locks.acquire('order', { wait: 0 })).release()
    for (const node of quorum.nodes) await node.cli('SCRIPT', 'FLUSH')
  }
  for (const locks of processes) await (await locks.acquire('order', { wait: 0 })).release()
})
