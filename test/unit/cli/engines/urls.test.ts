import { array, constantFrom, oneof, record, tuple } from 'fast-check'
import { afterAll, expect, test, vi } from 'vitest'
import { always, FUZZ_TIMEOUT_MS } from '../../fuzz/for-so-long.ts'

// The output of a process knows all secrets that it has seen, and test files share a process: these must not meet those of others.
vi.resetModules()
afterAll(() => void vi.resetModules())
const { connect } = await import('../../../../src/cli/engines/connect.ts')
const { openStore } = await import('../../../../src/cli/engines/store.ts')
const { EXIT, Failure } = await import('../../../../src/cli/exit-codes.ts')
const { clean } = await import('../../../../src/cli/output.ts')
const { noteSecrets } = await import('../../../../src/cli/settings.ts')

/** No message has it, whatever is wrong with the URL around it. */
const PLANTED = 'pl4nted'

let planted = 0

/** A password of its own, of which the output knows nothing, and then as much as it finds out. */
function known(url: string): string {
  // In `redis:secret` nobody can tell what is meant.
  const text = url.replaceAll(PLANTED, url.includes('://') ? `${PLANTED}-${++planted}-` : 'p')
  noteSecrets(text)
  return text
}

/** Nobody listens there, and no name is looked up. */
const NOBODY = '127.0.0.1:1'

const SCHEMES = ['redis', 'rediss', 'valkey', 'redis+sentinel', 'rediss+sentinel', 'redis+cluster', 'valkeys+cluster']
  .concat(['postgres', 'postgresql', 'mariadb', 'mysql', 'mongodb', 'etcd', 'etcds', 'consul', 'consuls', 'zookeeper'])
  .concat(['REDIS', 'redis-sentinel', 'http', 'toString', ''])

const NAMES = ['prefix', 'requestTimeout', 'drift', 'fenceTtl', 'replicas', 'within', 'maxTtl', 'restart', 'table']
  .concat(['collection', 'ssl', 'sslmode', 'sslrootcert', 'sslnegotiation', 'ca', 'cert', 'key', 'tls', 'tlsCAFile'])
  .concat(['token', 'lockDelay', 'sessionTtlMin', 'node', 'path', 'acl', 'sentinelPassword', 'authSource', 'w', 'port'])
  .concat(['connectTimeoutMS', 'directConnection', 'replicaSet', 'options', 'host', '__proto__', ''])

const VALUES = [
  '',
  '0',
  '-1',
  '1',
  '10s',
  '1e999',
  'NaN',
  'true',
  'false',
  'auto',
  'x',
  '/nowhere',
  '/',
  '%00',
  '%20',
  '%',
].concat(['%ff', 'a=b', '[', '{"a":1}', '../..', 'x'.repeat(5000), '\u202e', '💥'])

const piece = constantFrom(
  NOBODY,
  NOBODY,
  `u:${PLANTED}@${NOBODY}`,
  `:${PLANTED}%40@${NOBODY}`,
  `u@${NOBODY}`,
  '[::1]:1',
  `@${NOBODY}`,
)
const oddPiece = constantFrom(
  '',
  ':',
  '@',
  '127.0.0.1:0',
  '127.0.0.1:99999',
  '127.0.0.1:x',
  '[',
  '[::1',
  `u:${PLANTED}`,
  '%zz',
  ' ',
)

const urls = record({
  scheme: constantFrom(...SCHEMES),
  slashes: constantFrom('://', '://', '://', '://', ':', ':/', ''),
  hosts: array(oneof({ weight: 6, arbitrary: piece }, { weight: 1, arbitrary: oddPiece }), { maxLength: 4 }),
  path: constantFrom(
    '',
    '/',
    '/app',
    '/0',
    '/1',
    '/99999999999',
    '/a/b',
    '/a.b',
    '/name/0',
    '/name/x',
    '/%2e',
    '/%',
    '//',
  ),
  parameters: array(tuple(constantFrom(...NAMES), constantFrom(...VALUES)), { maxLength: 3 }),
  end: constantFrom('', '', '', '', '#', '#name', '?', '&'),
}).map(({ scheme, slashes, hosts, path, parameters, end }) => {
  const query = parameters.map(([name, value]) => `${name}=${value}`).join('&')
  return `${scheme}${slashes}${hosts.join(',')}${path}${query === '' ? '' : `?${query}`}${end}`
})

/** What is opened is closed again. A failure says what is wrong with the setting that has the URL, and shows no stack. */
async function opened(work: () => Promise<{ close: () => unknown }>): Promise<string> {
  try {
    await (await work()).close()
    return 'opened'
  } catch (error) {
    // Anything else would end with a stack trace.
    if (!(error instanceof Failure) || !/^(RINGFENCE_URL: |the database \d+ of .* cannot be used)/.test(error.message))
      throw error
    if (clean(`${error.message} ${error.next}`).includes(PLANTED))
      throw new Error(`it tells the password of ${error.message}`, { cause: error })
    return 'usage'
  }
}

/** What was found once. */
const FOUND = [
  'mongodb://127.0.0.1:1/app?requestTimeout=x',
  'postgres://127.0.0.1:1/app?ssl=%',
  known(`redis-sentinel://u:${PLANTED}`),
  known(`://u:${PLANTED}`),
]

test('every URL is an engine or wrong usage, and nothing else', { timeout: FUZZ_TIMEOUT_MS }, async () => {
  const seen = new Set<string>()
  await always(urls.map(known), { runs: 400, part: 1 / 2, examples: FOUND }, async (text) => {
    const outcome = await opened(async () => {
      const { engine, close } = await connect({ text, source: 'RINGFENCE_URL' })
      await engine.close?.()
      return { close }
    })
    seen.add(outcome)
  })
  expect(seen).toEqual(new Set(['opened', 'usage']))
})

test.each([
  ['postgres://127.0.0.1:1/app?port=x', 'expected a port from 1 to 65535'],
  ['postgres://127.0.0.1:1/app?sslnegotiation=later', 'expected a URL that pg takes'],
  ['mongodb://127.0.0.1:1/a.b', "Database names cannot contain the character '.'"],
  ['mongodb://127.0.0.1:1/app?requestTimeout=x', 'requestTimeout: expected'],
  ['mongodb://127.0.0.1:1/app?connectTimeoutMS=x', 'expected a URL that mongodb takes'],
])('%s is wrong usage, before anything is connected', async (text, said) => {
  await expect(connect({ text, source: 'RINGFENCE_URL' })).rejects.toMatchObject({
    exitCode: EXIT.usage,
    message: expect.stringContaining(said) as string,
  })
})

test('every URL is a store or wrong usage, and nothing else', { timeout: FUZZ_TIMEOUT_MS }, async () => {
  await always(urls.map(known), { runs: 200, part: 1 / 2 }, async (text) => {
    await opened(() => openStore({ text, source: 'RINGFENCE_URL' }))
  })
})
