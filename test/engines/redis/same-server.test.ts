import { describe, expect, test } from 'vitest'
import { startProxy, type Proxy } from '../../../harness/faults/proxy.ts'
import { until } from '../../../harness/until.ts'
import { messageOf } from '../../../src/errors.ts'
import type { Lease, LeaseJson } from '../../../src/lease.ts'
import type { Locks } from '../../../src/locks.ts'
import { lockKeys, startQuorum, type Quorum } from './faults-quorum.ts'

/** Another name of the host, and another database: neither is another server. */
function threeAddressesOf(port: number): string[] {
  return [`redis://127.0.0.1:${port}`, `redis://localhost:${port}`, `redis://localhost:${port}/1`]
}

const RUN = String.raw`\(run_id [0-9a-f]{40}\): one server must not have two votes, so neither counts; give every client`

describe.concurrent.each([{ restart: 'auto' }, { restart: 'strict' }, { restart: 'trust' }] as const)(
  'several clients of one server, with restart: $restart,',
  (options) => {
    test('three: the first grant is refused for good, with their names, and no lock is left', async () => {
      await using quorum = await startQuorum({}, 1)
      const { port } = quorum.nodes[0]!
      const locks = quorum.locks({}, options, threeAddressesOf(port))
      const refusal = await locks.tryAcquire('order').catch((error: unknown) => error)
      expect(refusal).toMatchObject({ code: 'QUORUM', transient: false })
      const { message } = refusal as Error
      expect(message).toMatch(new RegExp(`is the same server as (127.0.0.1|localhost):${port}(#\\d)? ${RUN}`))
      const names = [`127.0.0.1:${port}`, `localhost:${port}#1`, `localhost:${port}#2`]
      expect(names.filter((name) => message.includes(name)).length).toBeGreaterThanOrEqual(2)
      await expect(locks.acquire('order', { wait: '10s' })).rejects.toMatchObject({ transient: false })
      await until(async () => (await lockKeys(quorum.nodes[0]!)).length === 0, { what: 'no lock is left' })
    })

    test('two, and one of another server: neither of the two counts', async () => {
      await using quorum = await startQuorum({}, 2)
      const [a, b] = quorum.nodes.map(({ port }) => port) as [number, number]
      const locks = quorum.locks({}, options, [a, b, `redis://localhost:${a}`])
      let told = ''
      const refused = async (): Promise<unknown> => (told += await locks.tryAcquire('order').catch(messageOf))
      for (const [one, other] of [
        ['127.0.0.1', 'localhost'],
        ['localhost', '127.0.0.1'],
      ]) {
        const what = `${one}:${a}: is the same server as ${other}:${a}`
        await until(async () => String(await refused()).includes(what), { what })
      }
      expect(told).not.toContain('[object Object]')
    })
  },
)

test.concurrent.each(['auto', 'trust'] as const)(
  'with restart: %s, a client that leads to a server of its own from now on votes, and the deployment is still new',
  async (restart) => {
    await using quorum = await startQuorum({}, 3)
    const [a, b, c] = quorum.nodes.map(({ port }) => port) as [number, number, number]
    await using proxy = await startProxy(a)
    const locks = quorum.locks({}, { restart }, [a, b, proxy.port])
    await expect(locks.tryAcquire('order')).rejects.toThrow('is the same server as')
    proxy.aim(c)
    proxy.reset()
    const granted = async (): Promise<boolean> => (await locks.tryAcquire('order').catch(() => null)) !== null
    await until(granted, { what: 'all three vote', withinMs: 20_000 })
    const { engine } = locks
    expect((await engine.probe!()).map(({ sitsOutMs }) => sitsOutMs)).toEqual([undefined, undefined, undefined])
  },
)

interface Led {
  readonly quorum: Quorum
  /** A process whose second client leads to the server of its first one. */
  readonly led: Locks
}

/** Calls back with a process that has looked at its nodes while its second client was silent, or led to a server of its own. */
async function whenLed(when: 'silent' | 'elsewhere', body: (led: Led) => Promise<void>): Promise<void> {
  await using quorum = await startQuorum({}, 3)
  const [a, b, c] = quorum.nodes.map(({ port }) => port) as [number, number, number]
  await using proxy: Proxy = await startProxy(b)
  const led = quorum.locks({ ttl: '30s' }, { restart: 'trust' }, [a, proxy.port, c])
  if (when === 'silent') {
    proxy.dropReplies(true)
    await (await led.acquire('warm-up')).release()
    proxy.dropReplies(false)
  } else await (await led.acquire('warm-up')).release()
  proxy.aim(a)
  proxy.reset()
  await body({ quorum, led })
  await led.close()
}

describe.concurrent.each(['silent', 'elsewhere'] as const)(
  "with restart: 'trust', a client that was %s at the first grant and then leads to another one's server",
  (when) => {
    test.each<[string, (led: Locks, ticket: LeaseJson) => Promise<Lease | null>, former?: string]>([
      ['an exclusive lease', (led) => led.tryAcquire('order')],
      ['a shared lease', (led) => led.tryAcquire('order', { shared: true })],
      ['a lease that is waited for', (led) => led.acquire('order', { wait: '3s' })],
      ['an adoption', (led, ticket) => led.adopt(ticket), 'former'],
    ])('has no second vote for %s', async (_, take, former) => {
      await whenLed(when, async ({ quorum, led }) => {
        const [first, ...others] = quorum.nodes
        // It has got a majority without the first server.
        const clients = [1, ...others.map(({ port }) => port)]
        const rival = await quorum.locks({ ttl: '60s' }, { restart: 'trust' }, clients).acquire('order')
        if (former !== undefined) await first!.cli('SET', 'order', former, 'PX', '60000')
        expect(await take(led, { ...rival.toJSON(), owner: former ?? rival.owner }).catch(() => null)).toBeNull()
        expect(rival.held).toBe(true)
        await expect(led.tryAcquire('other')).rejects.toThrow('is the same server as')
      })
    })
  },
)

test('with restart: trust, a lease whose requests the driver has sent twice to all servers is granted', async () => {
  await using quorum = await startQuorum({}, 3)
  const [a, b, c] = quorum.nodes.map(({ port }) => port) as [number, number, number]
  await using one = await startProxy(a)
  await using two = await startProxy(b)
  await using three = await startProxy(c)
  const proxies = [one, two, three]
  const locks = quorum.locks(
    {},
    { restart: 'trust', requestTimeout: '10s' },
    proxies.map(({ port }) => port),
  )
  await (await locks.acquire('warm-up')).release()
  for (const proxy of proxies) proxy.cutOnNextReply('order')
  const lease = await locks.tryAcquire('order')
  expect(proxies.map(({ lostReplies }) => lostReplies)).toEqual([1, 1, 1])
  expect(lease?.held).toBe(true)
  await locks.close()
})
