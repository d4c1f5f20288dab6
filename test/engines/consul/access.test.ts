import { expect, test } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { createCertificates } from '../../../harness/certificates.ts'
import { startConsul, startSecureConsul, type ConsulServer } from '../../../harness/servers/consul.ts'
import { until } from '../../../harness/until.ts'
import { exercised, pageLines, runLines } from '../../operating/least-rights.ts'
import { failureOf, granted, inside, requestFor } from '../requests.ts'
import { open } from './setup.ts'

const MASTER = '11111111-1111-1111-1111-111111111111'
const ACL = `acl { enabled = true default_policy = "deny" tokens { master = "${MASTER}" agent = "${MASTER}" } }`

async function tokenWith(server: ConsulServer, name: string, rules: string): Promise<string> {
  await server.call('PUT', 'acl/policy', JSON.stringify({ Name: name, Rules: rules }))
  const token = (await server.call('PUT', 'acl/token', JSON.stringify({ Policies: [{ Name: name }] }))) as object
  return (token as { SecretID: string }).SecretID
}

test('the token of docs/operating/databases.md is enough, and nothing less is; no error shows it', async () => {
  await using server = await startConsul({ hcl: ACL, token: MASTER })
  const env = { CONSUL_HTTP_ADDR: server.url, CONSUL_HTTP_TOKEN: MASTER }
  const printed = await runLines(pageLines('consul.sh'), 'consul', env)
  const worker = /^SecretID: *(\S+)$/m.exec(printed)![1]!
  const reader = await tokenWith(server, 'reader', 'key_prefix "ringfence/" { policy = "read" }')
  const sessionless = await tokenWith(server, 'sessionless', 'key_prefix "ringfence/" { policy = "write" }')

  const one = open(server.url, { token: worker })
  const lease = await granted(one, requestFor('a'))
  const watch = one.watch!(['a'], () => undefined)
  expect(await watch.armed).toBe(true)
  watch.close()
  expect(await one.release(lease)).toMatchObject({ ours: true })
  const admin = (): Engine => open(server.url, { token: MASTER })
  await until(() => server.call('GET', 'operator/autopilot/health'), { what: 'the health of the servers is known' })
  // It may not ask the operator's questions.
  expect(await exercised(() => open(server.url, { token: worker }), admin(), { shared: false })).toEqual([
    'note consul/health',
  ])
  const rules = 'session "n0" { policy = "write" } key_prefix "ringfence/" { policy = "write" } operator = "read"'
  const local = open(server.url, { token: await tokenWith(server, 'local', rules) })
  expect((await local.check(10_000)).map(({ id }) => id)).toEqual((await admin().check(10_000)).map(({ id }) => id))

  const unknown = '22222222-2222-2222-2222-222222222222'
  for (const token of [reader, sessionless, unknown, undefined]) {
    const poor = open(server.url, token === undefined ? {} : { token })
    const error = await failureOf(poor)
    expect(error).toMatchObject({
      code: 'ENGINE',
      transient: false,
      message: expect.stringMatching(/Permission denied|ACL not found/),
    })
    expect(inside(error)).not.toContain(String(token))
    expect((await poor.check(10_000)).filter(({ severity }) => severity === 'critical')).toMatchObject([
      { id: 'consul/permission' },
    ])
  }
  expect(await open(server.url, { token: reader }).extend([lease])).toMatchObject([{ kind: 'lost' }])
})

test('TLS with an authority of our own and a client certificate works, and nothing less does', async () => {
  using certificates = createCertificates()
  const { server, url } = await startSecureConsul(certificates)
  await using _ = server
  const { ca, client, stranger } = certificates
  const one = open(url, { tls: { ca, ...client } })
  const lease = await granted(one, requestFor('a'))
  const watch = one.watch!(['a'], () => undefined)
  expect(await watch.armed).toBe(true)
  watch.close()
  expect(await one.release(lease)).toMatchObject({ ours: true })

  expect((await failureOf(open(url, { tls: client }))).message).toMatch(/self-signed certificate|unable to verify/)
  expect((await failureOf(open(url, { tls: { ca } }))).message).toMatch(/certificate|ECONNRESET|socket hang up/)
  expect((await failureOf(open(url, { tls: { ca, ...stranger } }))).message).toMatch(
    /certificate|ECONNRESET|socket hang up/,
  )
})
