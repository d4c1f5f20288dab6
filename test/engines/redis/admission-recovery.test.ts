import { describe, expect, test } from 'vitest'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { refused } from './admission-quorum.ts'
import { startQuorum } from './faults-quorum.ts'

test.concurrent('where something else is in the place of the stamp, a node sits out once and then votes', async () => {
  await using quorum = await startQuorum({}, 3)
  const [first, second] = quorum.nodes
  await (await quorum.locks({ ttl: '1s' }, { maxTtl: '1s' }).acquire('order')).release()
  await first!.cli('SET', 'ringfence:stamp', 'of another program')
  await second!.cli('DEL', 'ringfence:stamp')
  await second!.cli('RPUSH', 'ringfence:stamp', 'of another program')
  const fresh = quorum.locks({ ttl: '1s' }, { maxTtl: '1s' })
  await expect(fresh.acquire('order', { wait: 0 })).rejects.toThrow(/: sits out for \d s more/)
  await using lease = await fresh.acquire('order', { wait: '20s' })
  expect(lease.held).toBe(true)
  for (const node of quorum.nodes) expect(await node.cli('TYPE', 'ringfence:stamp')).toBe('hash')
})

describe.concurrent('a new deployment that could not be let in', () => {
  test('for want of a permission says which, and is let in at once when it is given', async () => {
    await using quorum = await startQuorum({ acl: ['app on nopass ~* &* +@all -script|load'] }, 3)
    const addresses = quorum.nodes.map(({ port }) => `redis://app:any@127.0.0.1:${port}`)
    const locks = quorum.locks({}, {}, addresses)
    await expect(locks.acquire('order', { wait: 0 })).rejects.toThrow(
      /does not vote: .*NOPERM.* allow this user .*script\|load/,
    )
    for (const node of quorum.nodes) await node.cli('ACL', 'SETUSER', 'app', '+@all')
    await (await locks.acquire('order', { wait: 0 })).release()
    await (await quorum.locks({}, {}, addresses).acquire('order', { wait: 0 })).release()
  })

  test.each([
    { why: 'memory', setting: 'maxmemory', wrong: '1mb', right: '0', says: /OOM/ },
    { why: 'replicas', setting: 'min-replicas-to-write', wrong: '1', right: '0', says: /NOREPLICAS/ },
  ])('for want of $why is let in at once when that is put right', async ({ setting, wrong, right, says }) => {
    await using quorum = await startQuorum({}, 3)
    for (const node of quorum.nodes) await node.cli('CONFIG', 'SET', setting, wrong)
    const locks = quorum.locks()
    await expect(locks.acquire('order', { wait: 0 })).rejects.toThrow(says)
    for (const node of quorum.nodes) await node.cli('CONFIG', 'SET', setting, right)
    await (await locks.acquire('order', { wait: 0 })).release()
    await (await quorum.locks().acquire('order', { wait: 0 })).release()
  })

  test('because its founder did not come to an end leaves it to the next one', async () => {
    await using quorum = await startQuorum({}, 3)
    const [first, second, third] = quorum.nodes.map(({ port }) => port)
    await using lineB = await startProxy(second!)
    await using lineC = await startProxy(third!)
    for (const line of [lineB, lineC]) line.dropRequests('LOAD')
    const founder = quorum.locks({}, {}, [first!, lineB.port, lineC.port])
    expect(await refused(founder)).toBe(true)
    expect([lineB.dropped, lineC.dropped].every((dropped) => dropped > 0)).toBe(true)
    await using lease = await quorum.locks().acquire('order', { wait: 0 })
    expect(lease.held).toBe(true)
  })

  test('is let in although a node answers slowly', async () => {
    await using quorum = await startQuorum({}, 3)
    const [first, second, third] = quorum.nodes.map(({ port }) => port)
    await using line = await startProxy(third!)
    // There and back more than a second: longer than a command that belongs to no lease may take.
    line.delay(550)
    const processes = [1, 2, 3].map(() =>
      quorum.locks({ ttl: '30s' }, { requestTimeout: undefined }, [first!, second!, line.port]),
    )
    await Promise.all(processes.map((locks, index) => locks.acquire(`own ${index}`, { wait: '20s' })))
    for (const node of quorum.nodes.slice(0, 2)) {
      expect(await node.cli('HGET', 'ringfence:stamp', 'epoch:61000')).toContain(' ')
    }
  })
})

test.concurrent('clients with another maxTtl are told so: a shorter one needs no wait, a longer one does', async () => {
  await using quorum = await startQuorum({}, 3)
  await using _lease = await quorum.locks({ ttl: '5s' }, { maxTtl: '10s' }).acquire('order')
  await using shorter = await quorum.locks({ ttl: '5s' }, { maxTtl: '7s' }).acquire('another', { wait: 0 })
  expect(shorter.held).toBe(true)
  const longer = quorum.locks({ ttl: '5s' }, { maxTtl: '20s' })
  await expect(longer.acquire('a third', { wait: 0 })).rejects.toThrow(
    'let in for clients with another maxTtl (10 s); clients of a quorum need the same: sits out for 21 s more',
  )
})
