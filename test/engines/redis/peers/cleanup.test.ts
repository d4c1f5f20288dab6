import { expect, onTestFinished, test } from 'vitest'
import { redlock } from '../../../../src/engines/redis/index.ts'
import { QuorumError } from '../../../../src/index.ts'
import { until } from '../../../../harness/until.ts'
import {
  aborted,
  fenceOn,
  gateTo,
  gone,
  ioredis,
  locksOn,
  ownerOn,
  proxyTo,
  scriptCalls,
  servers,
  settle,
} from './bench.ts'

test('bug 6: nodes that timed out are released too, after a failed attempt and with the lease', async () => {
  const three = await servers(3)
  const proxies = [await proxyTo(three[1]), await proxyTo(three[2])] as const
  const us = locksOn(redlock([three[0], ...proxies].map(ioredis), { requestTimeout: 500 }), { ttl: '60s' })
  await settle(us)

  // The requests land, nobody hears of it.
  for (const proxy of proxies) proxy.dropReplies(true)
  await expect(us.locks.tryAcquire('order')).rejects.toBeInstanceOf(QuorumError)
  expect(await fenceOn(three[1], 'order')).toBeGreaterThan(0n)
  expect(await fenceOn(three[2], 'order')).toBeGreaterThan(0n)
  await gone(three, 'order')

  proxies[0].dropReplies(false)
  proxies[0].reset()
  const lease = await us.locks.acquire('order')
  await until(async () => (await ownerOn(three[2], 'order')) === lease.owner, { what: 'the silent node has it' })
  expect(await lease.release()).toBe(true)
  await gone(three, 'order')
})

test('bug 6: an attempt that a frozen node runs late is undone there', async () => {
  const three = await servers(3)
  const us = locksOn(redlock(three.map(ioredis), { requestTimeout: 500 }), { ttl: '60s' })
  await settle(us)
  for (const node of three.slice(0, 2)) {
    await node.freeze()
    onTestFinished(() => node.thaw())
  }
  await expect(us.locks.tryAcquire('order')).rejects.toBeInstanceOf(QuorumError)
  for (const node of three.slice(0, 2)) {
    await node.thaw()
    await until(async () => (await fenceOn(node, 'order')) > 0n, { what: 'the attempt runs after all' })
  }
  await gone(three, 'order')
  await using lease = await us.locks.tryAcquire('order')
  expect(lease?.held).toBe(true)
})

test("bug 12: a caller's abort ends the wait at once and does not keep its keys", async () => {
  const three = await servers(3)
  const gates = await Promise.all(three.map(gateTo))
  const us = locksOn(redlock(gates.map(ioredis), { requestTimeout: '30s' }), { ttl: '60s' })
  await settle(us)
  for (const gate of gates) gate.holdReplies('order')
  const caller = new AbortController()
  const waiting = us.locks.acquire('order', { signal: caller.signal })
  await until(() => gates.every(({ held }) => held === 1), { what: 'all nodes have granted' })
  const reason = new Error('the user went away')
  caller.abort(reason)
  await expect(waiting).rejects.toBe(reason)
  expect(await ownerOn(three[0], 'order')).not.toBe('')

  for (const gate of gates) gate.open()
  await gone(three, 'order')
})

test('bug 12: an abort while too few nodes have granted does not keep their keys either', async () => {
  const three = await servers(3)
  const gate = await gateTo(three[1])
  const us = locksOn(redlock([three[0], gate, three[2]].map(ioredis), { requestTimeout: '30s' }), { ttl: '60s' })
  await settle(us)
  await three[2].cli('SET', 'order', 'someone-else')
  gate.holdRequests('order')
  const caller = new AbortController()
  const waiting = us.locks.acquire('order', { signal: caller.signal })
  await until(async () => gate.held === 1 && (await ownerOn(three[0], 'order')) !== '', { what: 'one has granted' })
  caller.abort(new Error('the user went away'))
  await expect(waiting).rejects.toThrow('the user went away')
  await three[1].cli('SET', 'order', 'someone-else')
  gate.open()
  await gone([three[0]], 'order')
  expect(await ownerOn(three[1], 'order')).toBe('someone-else')
})

test('bug 16: the release of an expired lease answers false, with one command a node', async () => {
  const three = await servers(3)
  const us = locksOn(redlock(three.map(ioredis), { requestTimeout: '5s' }), { ttl: 600, renew: false })
  await settle(us)
  const lease = await us.locks.acquire('order')
  await aborted(lease.signal)
  await gone(three, 'order')
  for (const node of three) await node.cli('CONFIG', 'RESETSTAT')
  expect(await lease.release()).toBe(false)
  expect(await lease.release()).toBe(false)
  for (const node of three) {
    await until(async () => (await scriptCalls(node)) > 0, { what: 'the release has arrived' })
    expect(await scriptCalls(node)).toBe(1)
  }
})

test('bug 16: a release that reaches nobody fails, once', async () => {
  const three = await servers(3)
  const clients = three.map(ioredis)
  const us = locksOn(redlock(clients, { requestTimeout: 500 }), { renew: false })
  await settle(us)
  const lease = await us.locks.acquire('order')
  // A slow one is still being let in when the others have decided.
  for (const node of three) await until(() => ownerOn(node, 'order'), { what: 'every node has granted' })
  await Promise.all(clients.map((client) => client.config('RESETSTAT')))
  for (const node of three) {
    await node.freeze()
    onTestFinished(() => node.thaw())
  }
  await expect(lease.release()).rejects.toBeInstanceOf(QuorumError)
  await expect(lease.release()).rejects.toBeInstanceOf(QuorumError)
  for (const node of three) await node.thaw()
  await Promise.all(clients.map((client) => client.ping()))
  expect(await Promise.all(three.map(scriptCalls))).toEqual([1, 1, 1])
  await gone(three, 'order')
})
