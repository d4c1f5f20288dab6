import { describe, expect, test } from 'vitest'
import { consul } from '../../../../../src/engines/consul/index.ts'
import { etcd } from '../../../../../src/engines/etcd/index.ts'
import { createLocks } from '../../../../../src/locks.ts'

const URL_OF = 'http://127.0.0.1:1'

/** What both take. */
const engines = [
  ['etcd', 'endpoints', etcd as (url: unknown, options?: unknown) => unknown],
  ['consul', 'url', consul as (url: unknown, options?: unknown) => unknown],
] as const

describe.each(engines)('%s()', (name, option, make) => {
  test.each([
    [undefined, `${option}: expected a URL such as 'http://127.0.0.1:`],
    [null, 'got null'],
    [5, 'got 5'],
    [{}, 'got an object'],
    ['', "got ''"],
    ['127.0.0.1:2379', "got '127.0.0.1:2379'"],
    ['redis://127.0.0.1', "got 'redis://127.0.0.1'"],
    ['http://127.0.0.1/?a=b', `${option}: expected a URL such as`],
    ['http://', `${option}: expected a URL such as`],
    [[], `${option}: expected at least one URL`],
    [[URL_OF, 'nonsense'], `${option}[1]: expected a URL such as`],
    [[URL_OF, `${URL_OF}/`], `${option}[1]: expected a server of its own, got the same as ${option}[0]`],
  ])('of %o says what it takes and what came', (given, message) => {
    expect(() => make(given)).toThrow(TypeError)
    expect(() => make(given)).toThrow(message)
  })

  test.each([
    'http://user:hidden@127.0.0.1:1',
    'http://hidden@127.0.0.1:1',
    'ftp://user:hidden@127.0.0.1',
    'user:hidden@127.0.0.1',
  ])('never shows a password of %s', (given) => {
    expect(() => make(given)).toThrow(TypeError)
    expect(messageOf(() => make(given))).not.toContain('hidden')
  })

  test.each([
    [{ ttl: 5 }, TypeError, 'options: expected prefix, '],
    [null, TypeError, 'options: expected an object, got null'],
    [{ prefix: 5 }, TypeError, 'prefix: expected a string, got 5'],
    [{ prefix: '' }, RangeError, "prefix: expected a path such as 'ringfence' or 'app/locks', got ''"],
    [{ prefix: '/' }, RangeError, 'prefix: '],
    [{ prefix: 'a\nb' }, RangeError, 'prefix: '],
    [{ requestTimeout: 0 }, RangeError, 'requestTimeout: expected 1 ms to 60 s, got 0'],
    [{ requestTimeout: 'soon' }, TypeError, 'requestTimeout: '],
    [{ fetch: 'fetch' }, TypeError, "fetch: expected a function, got 'fetch'"],
    [{ fetch, tls: {} }, TypeError, 'tls: expected none beside fetch'],
    [{ tls: 5 }, TypeError, 'tls: expected an object, got 5'],
    [{ tls: { pfx: 'x' } }, TypeError, "tls: expected ca, cert, key, servername, got 'pfx'"],
    [{ tls: { cert: 'x' } }, TypeError, 'tls: expected cert and key together, got cert alone'],
  ])('with %o names the option', (options, kind, message) => {
    expect(() => make(URL_OF, options)).toThrow(kind)
    expect(() => make(URL_OF, options)).toThrow(message)
  })

  test('connects to nobody by itself, and closes', async () => {
    const asked: string[] = []
    const engine = make(URL_OF, { fetch: async (url: string) => asked.push(url) }) as ReturnType<typeof etcd>
    expect(engine.name).toBe(name)
    await createLocks(engine).close()
    expect(asked).toEqual([])
  })
})

describe('etcd()', () => {
  test.each([
    [{ username: 'a' }, 'expected username and password together, got username alone; give both, or neither'],
    [{ password: 'hidden' }, 'expected username and password together, got password alone; give both, or neither'],
    [{ username: 5, password: 'hidden' }, 'username: expected a string that is not empty, got number'],
    [{ username: 'a', password: 12_345 }, 'password: expected a string that is not empty, got number'],
    [{ username: 'a', password: '' }, 'password: expected a string that is not empty, got an empty one'],
  ])('with %o names the option, and shows no password', (options, message) => {
    expect(() => etcd(URL_OF, options as never)).toThrow(TypeError)
    expect(messageOf(() => etcd(URL_OF, options as never))).toBe(message)
  })

  test('grants nothing shorter than a second, and says why', async () => {
    const locks = createLocks(etcd(URL_OF))
    await expect(locks.tryAcquire('a', { ttl: 999 })).rejects.toThrow(/^ttl: expected 1 s to .*whole seconds/)
    await locks.close()
  })

  test('a prefix ends with one slash, however it was given', () => {
    for (const prefix of ['app/locks', 'app/locks/', 'app/locks//'])
      expect(etcd(URL_OF, { prefix }).identity).toBe('etcd:app/locks/')
    expect(etcd(URL_OF, { prefix: '/app' }).identity).toBe('etcd:/app/')
    expect(consul(URL_OF, { prefix: 'app/locks/' }).identity).toBe('consul:app/locks/')
  })
})

describe('consul()', () => {
  test.each([
    [{ token: 5 }, TypeError, 'token: expected a string that is not empty, got number'],
    [{ token: 'hidden\nx' }, TypeError, 'token: expected no control characters'],
    [{ lockDelay: -1 }, RangeError, 'lockDelay: expected 0 ms to 60 s, got -1'],
    [{ lockDelay: '61s' }, RangeError, "lockDelay: expected 0 ms to 60 s, got '61s'"],
    [{ sessionTtlMin: 5 }, RangeError, 'sessionTtlMin: expected 100 ms to 24 h, got 5'],
    [{ node: '' }, TypeError, "node: expected a name, got ''"],
    [{ datacenter: 5 }, TypeError, 'datacenter: expected a name, got 5'],
    [{ namespace: null }, TypeError, 'namespace: expected a name, got null'],
    [{ prefix: '/a' }, RangeError, 'prefix: expected letters, digits and -_.~:@ between slashes'],
    [{ prefix: 'a/../b' }, RangeError, 'prefix: '],
    [{ prefix: 'a//b' }, RangeError, 'prefix: '],
    [{ prefix: 'a b' }, RangeError, 'prefix: '],
  ])('with %o names the option', (options, kind, message) => {
    expect(() => consul(URL_OF, options as never)).toThrow(kind)
    expect(messageOf(() => consul(URL_OF, options as never))).toContain(message)
    expect(messageOf(() => consul(URL_OF, options as never))).not.toContain('hidden')
  })
})

function messageOf(call: () => unknown): string {
  try {
    call()
  } catch (error) {
    return (error as Error).message
  }
  return 'nothing was thrown'
}
