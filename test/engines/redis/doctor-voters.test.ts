import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { startRedisNodes } from '../../../harness/servers/redis.ts'
import type { Finding } from '../../../src/engine.ts'
import { redlock } from '../../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { restartEmpty, startQuorum, type Quorum } from './faults-quorum.ts'

function stamps({ nodes }: Quorum): Promise<string[]> {
  return Promise.all(nodes.map((node) => node.cli('HGETALL', 'ringfence:stamp')))
}

async function voters(locks: Locks): Promise<Finding | undefined> {
  return (await locks.check()).find(({ id }) => id === 'redis/voters')
}

async function warnings(locks: Locks): Promise<string[]> {
  return (await locks.check()).filter(({ severity }) => severity === 'warning').map(({ id }) => id)
}

test.concurrent('the doctor and a probe show the nodes that sit out, and start nothing; init does', async () => {
  await using quorum = await startQuorum({}, 5)
  const locks = quorum.locks()
  await (await locks.acquire('order')).release()
  expect(await voters(quorum.locks())).toMatchObject({ severity: 'ok', found: '5 of 5 nodes may vote; 3 are needed.' })

  await restartEmpty(quorum.nodes[0]!)
  expect(await voters(quorum.locks())).toMatchObject({
    severity: 'warning',
    found: `4 of 5 nodes may vote; 3 are needed; 127.0.0.1:${quorum.nodes[0]!.port} sits out for 61 s from the next attempt on.`,
    remedy: expect.stringContaining('Run `ringfence init`') as string,
  })
  for (const node of quorum.nodes.slice(1, 3)) await restartEmpty(node)
  const before = await stamps(quorum)
  expect(await voters(quorum.locks())).toMatchObject({
    severity: 'critical',
    found: expect.stringMatching(
      /^2 of 5 nodes may vote; 3 are needed; .+, .+, .+ sit out for 61 s from the next attempt on\.$/,
    ) as string,
  })
  const states = await quorum.locks().engine.probe!()
  expect(states.map(({ sitsOutMs }) => sitsOutMs)).toEqual([61_000, 61_000, 61_000, undefined, undefined])
  expect(await stamps(quorum)).toEqual(before)

  await quorum.locks().engine.init!()
  expect(await voters(quorum.locks())).toMatchObject({
    found: expect.stringMatching(
      /^2 of 5 nodes may vote; 3 are needed; .+, .+, .+ sit out for (6[01]|5\d) s more\.$/,
    ) as string,
    remedy: expect.stringMatching(/^Wait: /) as string,
  })
})

test.concurrent('the doctor tells of clients with another maxTtl, and of nodes that all forget', async () => {
  await using quorum = await startQuorum({}, 3)
  const locks = quorum.locks()
  await (await locks.acquire('order')).release()
  expect(await warnings(locks)).toEqual(['redis/all-forget'])
  expect(await warnings(quorum.locks({}, { restart: 'strict' }))).toEqual([])
  expect(await warnings(quorum.locks({ ttl: '5s' }, { maxTtl: '10s' }))).toContain('redis/max-ttl')
  await quorum.nodes[1]!.cli('CONFIG', 'SET', 'appendonly', 'yes')
  expect(await warnings(locks)).toEqual([])
})

test.concurrent('where all nodes refuse the login, the remedy is the login', async () => {
  await using nodes = await startRedisNodes(3, { password: 'secret' })
  const clients = nodes.nodes.map(({ host, port }) =>
    new Redis({ host, port, password: 'wrong' }).on('error', () => undefined),
  )
  const findings = await createLocks(redlock(clients)).check()
  for (const client of clients) client.disconnect()
  expect(findings.find(({ id }) => id === 'redis/quorum')).toMatchObject({
    severity: 'critical',
    found: '0 of 3 nodes answer; 2 are needed.',
    remedy: expect.stringMatching(/^Give the clients the right username and password/) as string,
  })
})
