import { describe, expect, test } from 'vitest'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { until } from '../../../harness/until.ts'
import { messageOf } from '../../../src/errors.ts'
import { lockKeys, startQuorum } from './faults-quorum.ts'

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
