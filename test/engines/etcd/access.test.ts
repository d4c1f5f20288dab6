import { expect, onTestFinished, test } from 'vitest'
import { etcd, type EtcdOptions } from '../../../src/engines/etcd/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { createCertificates } from '../../../harness/certificates.ts'
import { startEtcd, startSecureEtcd } from '../../../harness/servers/etcd.ts'
import { exercised, pageLines, runLines } from '../../operating/least-rights.ts'
import { failureOf, inside, requestFor } from '../requests.ts'

function engine(url: string, options: EtcdOptions): Engine {
  const made = etcd(url, options)
  onTestFinished(() => made.close())
  return made
}

test('with the login of docs/operating/databases.md everything works, also after the server forgot the login', async () => {
  await using server = await startEtcd()
  const app = { username: 'app', password: 'change-this' }
  const worker = engine(server.url, app)
  // Before logins are switched on, one is not asked for.
  expect((await worker.acquire(requestFor('early', 5000))).kind).toBe('granted')
  // And a user without any role.
  const lines = `etcdctl user add guest:guest-change-this\n${pageLines('etcd.sh')}`
  await runLines(lines, 'etcdctl', { ETCDCTL_ENDPOINTS: server.url })
  const root = engine(server.url, { username: 'root', password: 'change-this-too' })
  expect(await exercised(() => engine(server.url, app), root)).toEqual([])

  const request = requestFor('a')
  const outcome = await worker.acquire(request)
  expect(outcome.kind).toBe('granted')
  const lease = { ...request, token: (outcome as { token: bigint }).token }
  await server.kill()
  await server.restart()
  expect(await worker.extend([lease])).toEqual([{ kind: 'held' }])
  const waiting = worker.enqueue!(requestFor('a'), new AbortController().signal)
  expect(await worker.release(lease)).toMatchObject({ ours: true })
  expect((await waiting).token).toBeGreaterThan(lease.token)

  const shared = { ...requestFor('b'), shared: true }
  expect((await worker.acquire(shared)).kind).toBe('granted')
  const beside = await worker.enqueue!({ ...requestFor('b'), shared: true }, new AbortController().signal)
  expect(await worker.release({ ...shared, token: beside.token })).toMatchObject({ ours: true })

  const wrong = await failureOf(engine(server.url, { ...app, password: 'wrong-change-this' }))
  expect(wrong).toMatchObject({ code: 'ENGINE', transient: false })
  const none = await failureOf(engine(server.url, {}))
  expect(none).toMatchObject({ code: 'ENGINE', transient: false })
  const guest = await failureOf(engine(server.url, { username: 'guest', password: 'guest-change-this' }))
  expect(guest).toMatchObject({ code: 'ENGINE', transient: false, message: 'etcd: etcdserver: permission denied' })
  const elsewhere = engine(server.url, { ...app, prefix: 'other' })
  expect(await failureOf(elsewhere)).toMatchObject({ message: 'etcd: etcdserver: permission denied' })
  for (const error of [wrong, none, guest]) expect(inside(error)).not.toMatch(/change-this/)

  // Given beside the URL only, so that no message and no log of a proxy can show it.
  expect(
    (await engine(server.url, { username: 'guest', password: 'guest-change-this' }).check(10_000)).filter(
      ({ severity }) => severity === 'critical',
    ),
  ).toMatchObject([{ id: 'etcd/permission', found: expect.stringContaining('permission denied') }])
})

test('TLS with an authority of our own and a client certificate works, and nothing less does', async () => {
  using certificates = createCertificates()
  await using server = await startSecureEtcd(certificates)
  const url = `https://127.0.0.1:${server.port}`
  const { ca, client, stranger } = certificates
  const one = engine(url, { tls: { ca, ...client } })
  const request = requestFor('a')
  const outcome = await one.acquire(request)
  expect(outcome.kind).toBe('granted')
  // Watches too.
  const waiting = one.enqueue!(requestFor('a'), new AbortController().signal)
  await one.release({ ...request, token: (outcome as { token: bigint }).token })
  await waiting

  expect((await failureOf(engine(url, { tls: client }))).message).toMatch(/self-signed certificate|unable to verify/)
  expect((await failureOf(engine(url, { tls: { ca } }))).message).toMatch(/certificate|ECONNRESET|socket hang up/)
  expect((await failureOf(engine(url, { tls: { ca, ...stranger } }))).message).toMatch(
    /certificate|ECONNRESET|socket hang up/,
  )
  expect((await failureOf(engine(`http://127.0.0.1:${server.port}`, {}))).message).toMatch(/^etcd: /)
})
