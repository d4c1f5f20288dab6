import { writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import { createPool } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { mariadbSettings } from '../../../src/cli/engines/sql.ts'
import { createCertificates, type Certificates } from '../../../harness/certificates.ts'
import { Home, type Ended } from '../../../harness/command.ts'
import { startMariadb, type MariadbServer } from '../../../harness/servers/mariadb.ts'
import { startMongodb, type MongodbServer } from '../../../harness/servers/mongodb.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { giveToServer } from '../../../harness/temporary-folder.ts'

// Each server lets users in by plain text, too: whoever is refused was refused by the client, and `secured` needs TLS.

const home = new Home()
let certificates: Certificates
let postgres: PostgresServer
let mariadb: MariadbServer
let mongodb: MongodbServer
/** Servers without TLS. */
let plain: { postgres: PostgresServer; mariadb: MariadbServer; mongodb: MongodbServer }

const file = (name: string): string => path.join(certificates.folder, name)

async function securePostgres(): Promise<PostgresServer> {
  const hba = file('pg_hba.conf')
  writeFileSync(
    hba,
    `hostssl all secured 127.0.0.1/32 trust
hostssl all certified 127.0.0.1/32 cert map=any
host all postgres 127.0.0.1/32 trust
`,
  )
  const ident = file('pg_ident.conf')
  writeFileSync(ident, 'any client certified\n')
  for (const one of [hba, ident]) giveToServer(one)
  const server = await startPostgres({
    settings: {
      ssl: 'on',
      ssl_cert_file: file('server.pem'),
      ssl_key_file: file('server-key.pem'),
      ssl_ca_file: file('ca.pem'),
      hba_file: hba,
      ident_file: ident,
    },
  })
  await server.sql('CREATE ROLE secured LOGIN SUPERUSER; CREATE ROLE certified LOGIN SUPERUSER')
  return server
}

async function secureMariadb(): Promise<MariadbServer> {
  const settings = { 'ssl-cert': file('server.pem'), 'ssl-key': file('server-key.pem'), 'ssl-ca': file('ca.pem') }
  const server = await startMariadb({ settings })
  for (const [name, needs] of Object.entries({ secured: 'SSL', certified: 'X509' })) {
    await server.sql(`CREATE USER ${name}@'127.0.0.1' REQUIRE ${needs}; GRANT ALL ON *.* TO ${name}@'127.0.0.1'`)
  }
  return server
}

beforeAll(async () => {
  certificates = createCertificates()
  const mongoTls = ['--tlsMode', 'preferTLS', '--tlsCertificateKeyFile', file('server-both.pem')]
  const servers = await Promise.all([
    securePostgres(),
    secureMariadb(),
    startMongodb({ args: [...mongoTls, '--tlsCAFile', file('ca.pem')] }),
    startPostgres(),
    startMariadb(),
    startMongodb(),
  ])
  ;[postgres, mariadb, mongodb] = servers
  plain = { postgres: servers[3], mariadb: servers[4], mongodb: servers[5] }
})

afterAll(async () => {
  await home[Symbol.asyncDispose]()
  const servers = [postgres, mariadb, mongodb, ...Object.values(plain)]
  await Promise.all(servers.map((server) => server.stop()))
  certificates[Symbol.dispose]()
})

let runs = 0

function echoed(RINGFENCE_URL: string): Promise<Ended> {
  return home.run(['run', '--no-wait', `job-${runs++}`, '--', 'echo', 'in'], { env: { RINGFENCE_URL } })
}

const IN = { code: 0, signal: null, stdout: 'in\n', stderr: '' }

/** Nobody was let in, because of what fits the reason. */
async function refused(url: string, reason: RegExp): Promise<void> {
  const { code, stdout, stderr } = await echoed(url)
  expect({ code, stdout }).toEqual({ code: EXIT.engine, stdout: '' })
  expect(stderr).toMatch(reason)
}

const pgUrl = (query: string, { user = 'secured', host = '127.0.0.1' } = {}): string =>
  `postgres://${user}@${host}:${postgres.port}/postgres?requestTimeout=10s&${query}`
const pgCa = (): string => `sslrootcert=${file('ca.pem')}`
const pgShown = (name: string): string => `&sslcert=${file(`${name}.pem`)}&sslkey=${file(`${name}-key.pem`)}`

describe('postgres', () => {
  test.concurrent.each(['require', 'verify-ca', 'verify-full'])(
    'sslmode=%s trusts the authority that it names, and prints no warning',
    async (mode) => expect(await echoed(pgUrl(`sslmode=${mode}&${pgCa()}`))).toEqual(IN),
  )

  test.concurrent.each(['require', 'verify-ca', 'verify-full'])(
    'sslmode=%s refuses a certificate of a stranger, one of another host, and a server without TLS',
    async (mode) => {
      await refused(pgUrl(`sslmode=${mode}`), /certificate/)
      await refused(pgUrl(`sslmode=${mode}&sslrootcert=${file('other-ca.pem')}`), /certificate/)
      await refused(pgUrl(`sslmode=${mode}&${pgCa()}`, { host: 'localhost' }), /Hostname\/IP does not match/)
      const without = `postgres://postgres@127.0.0.1:${plain.postgres.port}/postgres`
      await refused(`${without}?sslmode=${mode}&${pgCa()}`, /does not support SSL/)
    },
  )

  test('an authority alone means TLS, and no-verify asks for no certificate', async () => {
    expect(await echoed(pgUrl(pgCa()))).toEqual(IN)
    expect(await echoed(pgUrl('sslmode=no-verify'))).toEqual(IN)
    // As libpq has it, for those who ask for it: TLS with whoever answers.
    expect(await echoed(pgUrl('sslmode=require&uselibpqcompat=true'))).toEqual(IN)
  })

  test('without sslmode, or with disable, there is no TLS', async () => {
    for (const query of ['', 'sslmode=disable']) await refused(pgUrl(query), /no pg_hba.conf entry.*no encryption/)
  })

  test('a client shows its certificate', async () => {
    const query = `sslmode=verify-full&${pgCa()}`
    const user = 'certified'
    expect(await echoed(pgUrl(query + pgShown('client'), { user }))).toEqual(IN)
    await refused(pgUrl(query, { user }), /certificate/)
    await refused(pgUrl(query + pgShown('stranger'), { user }), /certificate|unknown ca/)
  })

  test.each([
    ['sslmode=prefer', "sslmode: expected disable, require, verify-ca, verify-full or no-verify, got 'prefer'"],
    ['sslmode=allow', 'nothing falls back to plain text'],
    ['ssl=false', "ssl: expected true, 1, 0 or no-verify, got 'false'"],
    ['sslrootcert=/nowhere.pem', 'sslrootcert: cannot be read'],
    ['sslnegotiation=later&sslmode=require', 'sslnegotiation'],
  ])('%s is wrong usage', async (query, said) => {
    expect(await echoed(pgUrl(query))).toMatchObject({
      code: EXIT.usage,
      stderr: expect.stringContaining(said) as string,
    })
  })
})

const mariaUrl = (query: string, { user = 'secured', host = '127.0.0.1' } = {}): string =>
  `mariadb://${user}@${host}:${mariadb.port}/ringfence?requestTimeout=10s&${query}`
const mariaCa = (): string => `ca=${file('ca.pem')}`

/** By mysql2. */
async function asked(host: string, tls: Record<string, Buffer>): Promise<unknown> {
  const settings = mariadbSettings('mysql2', { host, port: mariadb.port }, tls)
  // Wherever that name would lead.
  const stream = (): Socket => connect(mariadb.port, '127.0.0.1')
  const pool = createPool({ ...settings, user: 'secured', stream })
  try {
    return (await pool.query('SELECT 1 AS one'))[0]
  } finally {
    await pool.end()
  }
}

describe('mariadb', () => {
  test('trusts the authority that it names, and shows its own certificate', async () => {
    expect(await echoed(mariaUrl(`ssl=true&${mariaCa()}`))).toEqual(IN)
    expect(await echoed(mariaUrl(mariaCa()))).toEqual(IN)
    const shown = `&cert=${file('client.pem')}&key=${file('client-key.pem')}`
    expect(await echoed(mariaUrl(mariaCa() + shown, { user: 'certified' }))).toEqual(IN)
    await refused(mariaUrl(mariaCa(), { user: 'certified' }), /denied/i)
  })

  test('refuses strangers, another host and a server without TLS', async () => {
    await refused(mariaUrl('ssl=true'), /certificate/)
    await refused(mariaUrl(`ca=${file('other-ca.pem')}`), /certificate/)
    await refused(mariaUrl(mariaCa(), { host: 'localhost' }), /does not match|certificate/)
    await refused(`mariadb://root@127.0.0.1:${plain.mariadb.port}/ringfence?${mariaCa()}`, /ssl/i)
  })

  test('without ssl there is no TLS', async () => {
    for (const query of ['', 'ssl=false']) await refused(mariaUrl(query), /denied/i)
  })

  test('mysql2 does the same, for a host with a name', async () => {
    const authority = { ca: Buffer.from(certificates.ca) }
    expect(await asked('server', authority)).toMatchObject([{ one: 1 }])
    await expect(asked('server', {})).rejects.toThrow(/certificate/)
    await expect(asked('localhost', authority)).rejects.toThrow(/does not match/)
    await expect(asked('127.0.0.1', authority)).rejects.toThrow('expected the name of a host, got 127.0.0.1')
  })

  test.each([
    ['ssl=yes', "ssl: expected true or false, got 'yes'"],
    ['ssl=false&ca=x', 'expected ssl=true with ca, got ssl=false'],
    ['ca=/nowhere.pem', 'ca: cannot be read'],
    ['ssl-ca=x', "unknown parameter 'ssl-ca'"],
  ])('%s is wrong usage', async (query, said) => {
    expect(await echoed(mariaUrl(query))).toMatchObject({
      code: EXIT.usage,
      stderr: expect.stringContaining(said) as string,
    })
  })
})

const mongoUrl = (query: string, host = '127.0.0.1'): string =>
  `mongodb://${host}:${mongodb.port}/app?directConnection=true&requestTimeout=10s&${query}`
const mongoCa = (): string => `tlsCAFile=${file('ca.pem')}`
const mongoShown = (name: string): string => `&tlsCertificateKeyFile=${file(`${name}-both.pem`)}`

describe('mongodb', () => {
  test('trusts the authority that it names, and shows its own certificate', async () =>
    expect(await echoed(mongoUrl(`tls=true&${mongoCa()}${mongoShown('client')}`))).toEqual(IN))

  test.concurrent('refuses a server that it does not trust', () =>
    refused(mongoUrl(`tls=true${mongoShown('client')}`), /certificate/))

  test.concurrent('refuses another host', () =>
    refused(mongoUrl(`tls=true&${mongoCa()}${mongoShown('client')}`, 'localhost'), /does not match/))

  test.concurrent('is refused without a certificate, and with that of a stranger', async () => {
    for (const mine of ['', mongoShown('stranger')])
      await refused(mongoUrl(`tls=true&${mongoCa()}${mine}`), /certificate|alert|closed|ECONNRESET/)
  })

  test.concurrent('goes on with no server that has no TLS', () =>
    refused(
      `mongodb://127.0.0.1:${plain.mongodb.port}/app?directConnection=true&tls=true&${mongoCa()}`,
      /TLS|SSL|closed|ECONNRESET/,
    ))

  test.each([
    ['tls=maybe', 'tls'],
    [`tls=true&tlsCAFile=/nowhere.pem`, 'tlsCAFile: cannot be read'],
  ])('%s is wrong usage', async (query, said) => {
    expect(await echoed(mongoUrl(query))).toMatchObject({
      code: EXIT.usage,
      stderr: expect.stringContaining(said) as string,
    })
  })
})
