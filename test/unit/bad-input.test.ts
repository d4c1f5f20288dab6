import { createServer, type AddressInfo, type Socket } from 'node:net'
import { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { memory } from '../../src/engines/memory.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { EngineError } from '../../src/errors.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { bench } from './bench.ts'

/** Clients that have not connected and never will. */
function lazyClients(count: number): Redis[] {
  const clients = Array.from({ length: count }, (_, index) => new Redis({ lazyConnect: true, port: 1000 + index }))
  onTestFinished(() => {
    for (const client of clients) client.disconnect()
  })
  return clients
}

describe('a resource name', () => {
  test.each([
    ['an empty one', '', RangeError, 'resource: expected a name, got an empty string'],
    [
      'a huge one',
      'x'.repeat(100_000),
      RangeError,
      'resource: expected at most 1024 bytes, got 100000; take a hash of it',
    ],
    [
      'a line break',
      'a\nb',
      RangeError,
      String.raw`resource: expected a name without control characters, got "a\nb"; encode them, for example by encodeURIComponent`,
    ],
    [
      'a null byte',
      'a\0b',
      RangeError,
      String.raw`resource: expected a name without control characters, got "a\u0000b"`,
    ],
    ['a delete', 'a\u007f', RangeError, 'resource: expected a name without control characters, got '],
    [
      'half a character',
      'a\ud800b',
      RangeError,
      String.raw`resource: expected well-formed Unicode, got "a\ud800b"; a character was cut in two: cut between characters`,
    ],
    ['a number', 5, TypeError, 'resource: expected a string or an array of strings, got 5'],
    ['nothing', undefined, TypeError, 'resource: expected a string or an array of strings, got undefined'],
    ['null', null, TypeError, 'resource: expected a string or an array of strings, got null'],
    ['an object', { name: 'a' }, TypeError, 'resource: expected a string or an array of strings, got an object'],
    ['no names', [], RangeError, 'resource: expected 1 to 100 names, got 0'],
    [
      'too many',
      Array.from({ length: 101 }, (_, i) => `r${i}`),
      RangeError,
      'resource: expected 1 to 100 names, got 101; take one name for all of them',
    ],
    ['a number among names', ['a', 5], TypeError, "resource: expected a string, got 5; write '5'"],
    ['an empty one among names', ['a', ''], RangeError, 'resource: expected a name, got an empty string'],
  ])(
    'that is %s is refused by every method, and nothing is asked of the engine',
    async (_what, name, kind, message) => {
      const { engine, locks, clock } = bench()
      const given = name as string
      for (const call of [
        () => locks.tryAcquire(given),
        () => locks.acquire(given),
        () => locks.using(given, () => 1),
      ]) {
        const outcome = call()
        await expect(outcome).rejects.toThrow(kind)
        await expect(outcome).rejects.toThrow(message)
      }
      // These take one name.
      const forOne = Array.isArray(name)
        ? 'resource: expected a string, got an array'
        : message.split(' or an array')[0]!
      for (const call of [() => locks.elect(given, () => 1), () => locks.once(given, {}, () => 1)]) {
        await expect(call()).rejects.toThrow(forOne)
      }
      expect(engine.calls).toEqual([])
      expect(clock.timers).toBe(0)
    },
  )
})

describe('a key of the Redis engine itself', () => {
  const OWN = ['ringfence:stamp', 'ringfence:fence:{order:42}', 'ringfence:freed:{x}', 'ringfence:']

  test.each(OWN)('%s is no name for a lock, also if a prefix makes a part of it', async (key) => {
    for (const prefix of ['', 'ring', 'ringfence']) {
      const clients = lazyClients(4)
      const engines = [redis(clients.pop(), { prefix }), redlock(clients, { prefix })]
      for (const engine of engines) {
        const locks = createLocks(engine)
        const name = key.slice(prefix.length)
        for (const outcome of [locks.tryAcquire(name), locks.acquire(['a', name]), locks.using(name, () => 1)]) {
          await expect(outcome).rejects.toThrow(RangeError)
          await expect(outcome).rejects.toThrow(
            `does not begin with 'ringfence:', where the engine keeps its own, got '${key}'`,
          )
        }
      }
      expect(clients.map(({ status }) => status)).toEqual(['wait', 'wait', 'wait'])
    }
  })

  test('is not what a prefix may begin with', () => {
    for (const prefix of ['ringfence:', 'ringfence:fence:']) {
      expect(() => redis(lazyClients(1)[0], { prefix })).toThrow(/^prefix: expected one that does not begin with/)
    }
    expect(() => redis(lazyClients(1)[0], { prefix: 'ringfence' })).not.toThrow()
  })
})

describe('a ttl', () => {
  test.each([
    [Number.NaN, TypeError, 'got NaN'],
    [-5, RangeError, 'ttl: expected at least 50 ms, got -5'],
    [0, RangeError, 'ttl: expected at least 50 ms, got 0'],
    [49, RangeError, 'ttl: expected at least 50 ms, got 49'],
    [Infinity, RangeError, 'got Infinity'],
    [1e30, RangeError, 'got 1e+30'],
    ['forever', TypeError, "got 'forever'"],
    [{}, TypeError, 'got an object'],
  ])('of %o is refused by every method, and by extend', async (ttl, kind, message) => {
    const { engine, locks } = bench()
    const options = { ttl: ttl as number }
    for (const call of [
      () => locks.tryAcquire('a', options),
      () => locks.acquire('a', options),
      () => locks.using('a', options, () => 1),
      () => locks.elect('a', options, () => 1),
      () => locks.once('a', options, () => 1),
    ]) {
      const outcome = call()
      await expect(outcome).rejects.toThrow(kind)
      await expect(outcome).rejects.toThrow(message)
    }
    expect(engine.calls).toEqual([])
    const lease = await locks.acquire('a')
    await expect(lease.extend(options.ttl)).rejects.toThrow(message)
    expect(engine.count('extend')).toBe(0)
    expect(lease.held).toBe(true)
  })

  test('beyond what the engine grants is refused, with the limit', async () => {
    const engine = redlock(lazyClients(3), { maxTtl: '20s' })
    const locks = createLocks(engine)
    await expect(locks.tryAcquire('a', { ttl: '30s' })).rejects.toThrow('ttl: expected 50 ms to 20 s, got ')
    expect(() => createLocks(engine, { ttl: '21s' })).toThrow("ttl: expected 50 ms to 20 s, got '21s'")
    await expect(locks.once('a', { atLeast: '1m' }, () => 1)).rejects.toThrow(
      "atLeast: expected 0 ms to 20 s, got '1m'; redlock(clients, { maxTtl }) allows for more",
    )
  })
})

describe('createLocks', () => {
  test.each([[undefined], [null], ['redis://localhost'], [5], [{}], [[]], [() => memory()]])(
    'of %o says what an engine is',
    (engine) => {
      expect(() => createLocks(engine as never)).toThrow(TypeError)
      expect(() => createLocks(engine as never)).toThrow(
        /^engine: expected an engine such as memory\(\), redis\(client\) or redlock\(clients\), got /,
      )
    },
  )

  test('of a client instead of an engine says so too', () => {
    const [client] = lazyClients(1)
    expect(() => createLocks(client as never)).toThrow(
      /^engine: expected an engine such as .*, got a Redis client; wrap it: createLocks\(redis\(client\)\)$/,
    )
    expect(() => createLocks({ query: () => undefined } as never)).toThrow(/got a database client; wrap it/)
    expect(() => createLocks(lazyClients(3) as never)).toThrow(
      /got an array; wrap Redis clients: createLocks\(redlock\(\[a, b, c\]\)\)$/,
    )
  })
})

describe('redis()', () => {
  test.each([
    [undefined, 'undefined'],
    [null, 'null'],
    ['redis://user:secret@localhost', 'a string: connect first and pass the client, not its URL'],
    [[], 'an array'],
    [Redis, 'a function or class: pass an instance'],
    [{ host: 'localhost', port: 6379 }, 'what looks like options: pass a client made from them'],
    [{}, 'an object of another kind'],
    [Promise.resolve(), 'a promise: await it'],
    [5, 'a number'],
  ])('of %o says which clients it takes and what came, and never shows a password', (client, came) => {
    const message = messageOf(() => redis(client))
    expect(message).toContain('an ioredis or iovalkey Redis or Cluster')
    expect(message).toContain(came)
    expect(message).not.toContain('secret')
  })

  test('of a client that is closed says so', () => {
    const client = new Redis({ lazyConnect: true })
    client.disconnect()
    expect(() => redis(client)).toThrow(TypeError)
    expect(() => redis(client)).toThrow(/^client: expected a client that can be used, but localhost:6379: .*closed/)
  })

  test('of a client with a keyPrefix, or of a replica, says what to do instead', () => {
    const [prefixed, replica] = [
      new Redis({ lazyConnect: true, keyPrefix: 'app:' }),
      new Redis({ lazyConnect: true, readOnly: true }),
    ]
    onTestFinished(() => [prefixed, replica].forEach((client) => client.disconnect()))
    expect(() => redis(prefixed)).toThrow('use the prefix option')
    expect(() => redis(replica)).toThrow('pass a client of the master')
  })

  test.each([
    [{ prefix: 5 }, TypeError, 'prefix: expected a string, got 5'],
    [{ drift: -0.1 }, RangeError, 'drift: expected a part of the ttl from 0 to 0.5, got -0.1'],
    [{ drift: '1%' }, RangeError, "drift: expected a part of the ttl from 0 to 0.5, got '1%'"],
    [{ drift: Number.NaN }, RangeError, 'drift: '],
    [{ requestTimeout: 0 }, RangeError, 'requestTimeout: expected 1 ms to 60 s, got 0'],
    [{ requestTimeout: 'soon' }, TypeError, 'requestTimeout: '],
    [{ fenceTtl: '1m' }, RangeError, "fenceTtl: expected 60 min to 365 d, got '1m'"],
    [{ replicas: -1 }, RangeError, 'replicas: expected a whole number from 0 on, got -1'],
    [{ replicas: 1.5 }, RangeError, 'replicas: '],
    [{ replicas: '1' }, RangeError, 'replicas: '],
    [{ within: 0 }, RangeError, 'within: expected 1 ms to 60 s, got 0'],
  ])('with %o names the option', (options, kind, message) => {
    const [client] = lazyClients(1)
    expect(() => redis(client, options as never)).toThrow(kind)
    expect(() => redis(client, options as never)).toThrow(message)
  })

  test.each([[null], ['x'], [5]])('with %o instead of options says so', (options) => {
    const [client] = lazyClients(1)
    expect(() => redis(client, options as never)).toThrow(/^options: expected an object/)
    expect(() => redlock(lazyClients(3), options as never)).toThrow(/^options: expected an object/)
  })
})

describe('redlock()', () => {
  test.each([
    [undefined, TypeError, 'clients: expected an array of Redis clients, got undefined'],
    ['redis://a,b,c', TypeError, 'clients: expected an array of Redis clients, got '],
    [[], RangeError, 'clients: expected at least 3 independent Redis masters, got 0'],
  ])('of %o says what it takes', (clients, kind, message) => {
    expect(() => redlock(clients as never)).toThrow(kind)
    expect(() => redlock(clients as never)).toThrow(message)
  })

  test('of clients that are not in an array says how to pass them', () => {
    const [a, b] = lazyClients(2)
    expect(() => redlock(a as never, b as never)).toThrow(
      'clients: expected an array of Redis clients, got an object; pass them as one array: redlock([a, b, c])',
    )
  })

  test('of one or two clients points to redis(client): two are worse than one', () => {
    const [a, b] = lazyClients(2)
    expect(() => redlock([a])).toThrow('got 1; for one server use redis(client)')
    expect(() => redlock([a, b])).toThrow('got 2; for one server use redis(client)')
  })

  test('of the same client twice says which two', () => {
    const [a, b, c] = lazyClients(3)
    expect(() => redlock([a, b, a])).toThrow(
      'clients[2]: expected a client of its own, got the same object as clients[0]',
    )
    expect(() => redlock([a, b, c, b])).toThrow(
      'clients[3]: expected a client of its own, got the same object as clients[1]',
    )
  })

  test('of two clients of one server says which two; databases, and groups whose master changes, count as different', () => {
    const [a, b] = lazyClients(2)
    const lazy = { lazyConnect: true, host: 'localhost', port: 1000 }
    const sentinels = { lazyConnect: true, sentinels: [{ host: 's', port: 1 }], name: 'main' }
    expect(() => redlock([a, b, new Redis(lazy)])).toThrow(
      'clients[2]: expected each server once, got a second client of localhost:1000, that of clients[0]; ' +
        'a server with two votes could decide alone',
    )
    expect(() => redlock([a, b, new Redis({ ...lazy, db: 1 })])).not.toThrow()
    expect(() => redlock([a, new Redis(sentinels), new Redis(sentinels)])).not.toThrow()
  })

  test('of a closed client among open ones names it', () => {
    const clients = lazyClients(3)
    clients[1]!.disconnect()
    expect(() => redlock(clients)).toThrow(
      /^clients\[1\]: expected a client that can be used, but localhost:1001: .*closed/,
    )
  })

  test('of something else among clients names it', () => {
    const [a, b] = lazyClients(2)
    expect(() => redlock([a, b, {}])).toThrow(/clients\[2\]/)
  })

  test('of an even number is accepted, and survives no more losses than one node less', () => {
    expect(redlock(lazyClients(4)).guarantees.survives.lossOfServers).toBe(1)
    expect(redlock(lazyClients(3)).guarantees.survives.lossOfServers).toBe(1)
    expect(redlock(lazyClients(6)).guarantees.survives.lossOfServers).toBe(2)
    expect(redlock(lazyClients(5)).guarantees.survives.lossOfServers).toBe(2)
  })

  test.each([
    [{ restart: 'never' }, TypeError, "restart: expected 'auto', 'strict' or 'trust', got 'never'"],
    [{ maxTtl: 999 }, RangeError, 'maxTtl: expected 1 s to 365 d, got 999'],
    [{ maxTtl: '400d' }, RangeError, 'maxTtl: '],
    [{ maxTtl: null }, TypeError, 'maxTtl: '],
  ])('with %o names the option', (options, kind, message) => {
    expect(() => redlock(lazyClients(3), options as never)).toThrow(kind)
    expect(() => redlock(lazyClients(3), options as never)).toThrow(message)
  })

  test('connects nobody by itself', async () => {
    const clients = lazyClients(3)
    await createLocks(redlock(clients)).close()
    expect(clients.map(({ status }) => status)).toEqual(['wait', 'wait', 'wait'])
  })
})

describe('an option in the wrong place', () => {
  test.each([
    ['ttl', 'an option of createLocks and of its calls'],
    ['label', 'an option of createLocks'],
    ['atLeast', 'an option of once'],
  ])('%s, given to an engine, is told where it belongs', (option, where) => {
    const options = { [option]: '5s' } as never
    expect(() => redis(lazyClients(1)[0], options)).toThrow(new RegExp(`got '${option}'; ${option} is ${where}$`))
    expect(() => redlock(lazyClients(3), options)).toThrow(`; ${option} is ${where}`)
  })

  test.each([
    ['prefix', 'redis(client, { prefix })'],
    ['drift', 'redis(client, { drift })'],
    ['maxTtl', 'redlock(clients, { maxTtl })'],
  ])('%s, given to createLocks or a call, is told that it belongs to the engine', async (option, example) => {
    const options = { [option]: 1 } as never
    const message = `got '${option}'; ${option} is an option of the engine, as in ${example}`
    expect(() => createLocks(memory(), options)).toThrow(message)
    await expect(createLocks(memory()).acquire('a', options)).rejects.toThrow(message)
  })

  test('wait, where nothing waits, is told which calls do', async () => {
    const locks = createLocks(memory())
    const message =
      "got 'wait'; wait is an option of createLocks, acquire, using and tryAcquire; once never waits, and elect waits forever"
    const options = { wait: '1s' } as never
    await expect(locks.once('a', options, () => 1)).rejects.toThrow(message)
    await expect(locks.elect('a', options, () => 1)).rejects.toThrow(message)
  })

  test('reentrant, where nothing can be joined, is told which calls do', async () => {
    const locks = createLocks(memory())
    const message = "got 'reentrant'; reentrant is an option of createLocks, acquire, using and tryAcquire"
    const options = { reentrant: true } as never
    await expect(locks.once('a', options, () => 1)).rejects.toThrow(message)
    await expect(locks.elect('a', options, () => 1)).rejects.toThrow(message)
  })

  test('and by the name that another library has for it, is told our name and the place', () => {
    expect(() => redlock(lazyClients(3), { retryCount: 3 } as never)).toThrow(
      "got 'retryCount'; wait is an option of createLocks, acquire, using and tryAcquire",
    )
  })

  test('or in capitals is recognised', async () => {
    await expect(createLocks(memory()).acquire('a', { TTL: 5000 } as never)).rejects.toThrow(
      "got 'TTL'; did you mean ttl?",
    )
  })
})

describe('arguments in another order', () => {
  test('once without options says where they go', async () => {
    await expect(createLocks(memory()).once('a', (() => 1) as never, undefined as never)).rejects.toThrow(
      'options: expected an object, got a function; without options: once(name, {}, work)',
    )
  })

  test.each(['using', 'elect'] as const)(
    '%s with a ttl before its options, as other libraries have it',
    async (call) => {
      const locks = createLocks(memory())
      const given = [5000, {}, () => 1] as unknown as [() => number]
      const outcome = call === 'using' ? locks.using('a', ...given) : locks.elect('a', ...given)
      await expect(outcome).rejects.toThrow(
        `${call}: expected a name, options and the work, got 4 arguments; settings such as a ttl go into the options: { ttl: 5000 }`,
      )
    },
  )
})

test('a nested call that does not wait says that its own process holds the lease', async () => {
  const { locks } = bench()
  const lease = await locks.acquire('a')
  await expect(locks.acquire('a', { wait: 0 })).rejects.toMatchObject({
    code: 'HELD',
    holder: lease.owner,
    message: expect.stringMatching(
      /^'a' is held by this very process for 0 ms\. A lease is not re-entrant: /,
    ) as string,
  })
})

/** Speaks the Redis protocol, but answers every script with the same bytes. */
async function nonsenseServer(reply: string): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    let input = ''
    socket.on('data', (data) => {
      input += data.toString()
      for (let command = nextCommand(); command !== undefined; command = nextCommand()) socket.write(answer(command))
    })
    function nextCommand(): string[] | undefined {
      const lines = input.split('\r\n')
      const count = Number(lines[0]!.slice(1))
      if (lines.length <= 1 + 2 * count) return undefined
      input = lines.slice(1 + 2 * count).join('\r\n')
      return Array.from({ length: count }, (_, index) => lines[2 + 2 * index]!)
    }
  })
  function answer([name = '']: string[]): string {
    if (/^hello$/i.test(name)) return '-ERR unknown command HELLO\r\n'
    return /^(evalsha|eval|subscribe)$/i.test(name) ? reply : '+OK\r\n'
  }
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

async function locksOn(reply: string, nodes: 1 | 3): Promise<Locks> {
  const clients: Redis[] = []
  for (let i = 0; i < nodes; i++) {
    const client = new Redis(await nonsenseServer(reply), '127.0.0.1', {
      enableReadyCheck: false,
      protocol: 2,
    } as never)
    client.on('error', () => undefined)
    clients.push(client)
  }
  const engine =
    nodes === 1
      ? redis(clients[0], { requestTimeout: '20s' })
      : redlock(clients, { restart: 'trust', requestTimeout: '20s' })
  const locks = createLocks(engine, { ttl: '1m', wait: '3s' })
  onTestFinished(async () => {
    await locks.close()
    for (const client of clients) client.disconnect()
  })
  return locks
}

describe('a server that answers nonsense', () => {
  const answers = [
    ['a word', '+PONG\r\n'],
    ['an empty text', '$0\r\n\r\n'],
    ['no text', '$-1\r\n'],
    ['an empty list', '*0\r\n'],
    ['no list', '*-1\r\n'],
    ['a list of words', '*2\r\n+a\r\n+b\r\n'],
    ['a list within a list', '*1\r\n*1\r\n:1\r\n'],
    ['zero', ':0\r\n'],
    ['a negative number', ':-5\r\n'],
    ['a number too large to count with', '$20\r\n99999999999999999999\r\n'],
    ['a fraction', '$3\r\n1.5\r\n'],
    ['an error of its own', '-WEIRD thing happened\r\n'],
  ] as const

  test.each(answers)('%s: is a clear EngineError, with one server', async (_what, reply) => {
    const locks = await locksOn(reply, 1)
    const error = await locks.tryAcquire('a').then(
      (lease) => `granted ${lease?.token}`,
      (error: unknown) => error,
    )
    expect(error).toBeInstanceOf(EngineError)
    expect((error as EngineError).message).toMatch(/127\.0\.0\.1:\d+: .*(nonsense|WEIRD)/)
    expect((error as EngineError).resources).toEqual(['a'])
  })

  test.each(answers)('%s: is a clear QuorumError that tells of every node, with several', async (_what, reply) => {
    const locks = await locksOn(reply, 3)
    await expect(locks.tryAcquire('a')).rejects.toMatchObject({ code: 'QUORUM', size: 3, quorum: 2 })
  })

  test('does not make a waiter hang: its time is over in time, with the engine’s error', async () => {
    const locks = await locksOn('+PONG\r\n', 1)
    await expect(locks.acquire('a')).rejects.toMatchObject({
      code: 'ENGINE',
      message: expect.stringContaining('nonsense'),
    })
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

function lazy(): Redis {
  return new Redis({ lazyConnect: true })
}

describe('an option that does not exist', () => {
  const locks = createLocks(memory())

  test.each<[string, () => unknown]>([
    ['createLocks', () => createLocks(memory(), { timeout: 5 } as never)],
    ['redis', () => redis(lazy(), { ttl: '5s' } as never)],
    ['redlock', () => redlock([lazy(), lazy(), lazy()], { quorum: 1 } as never)],
  ])('of %s is refused by name, with those that exist', (_, call) => {
    expect(call).toThrow(
      /^options: expected .*, got '(timeout|ttl|quorum)'(; did you mean \w+\?|; (wait|ttl) is an option of createLocks.*)?$/,
    )
  })

  test.each<[string, () => Promise<unknown>]>([
    ['tryAcquire', () => locks.tryAcquire('a', { atleast: '5s' } as never)],
    ['acquire', () => locks.acquire('a', { TTL: '5s' } as never)],
    ['using', () => locks.using('a', { retries: 3 } as never, () => 1)],
    ['once', () => locks.once('a', { atleast: '5s' } as never, () => 1)],
    ['elect', () => locks.elect('a', { wait: 5 } as never, () => 1)],
  ])('of %s is refused by name, with those that exist', async (_, call) => {
    await expect(call()).rejects.toThrow(
      /^options: expected .*, got '(wait|TTL|retries|atleast)'(; did you mean \w+\?|; (wait|ttl) is an option of createLocks.*)?$/,
    )
  })

  test.each([
    ['timeout', 'wait'],
    ['retryCount', 'wait'],
    ['retryDelay', 'wait'],
    ['retryJitter', 'wait'],
    ['acquireTimeout', 'wait'],
    ['waitTime', 'wait'],
    ['duration', 'ttl'],
    ['expiration', 'ttl'],
    ['lockTimeout', 'ttl'],
    ['leaseTime', 'ttl'],
    ['automaticExtensionThreshold', 'renew'],
    ['refreshInterval', 'renew'],
    ['tll', 'ttl'],
    ['maxhold', 'maxHold'],
  ])('called %s is probably %s', async (given, meant) => {
    await expect(locks.acquire('a', { [given]: 5 })).rejects.toThrow(
      `options: expected ttl, renew, maxHold, onDoubt, note, shared, wait, signal, reentrant, got '${given}'; did you mean ${meant}?`,
    )
  })

  test.each([
    ['retryCount', 'wait? (a time: a release wakes waiters, so there are neither attempts nor pauses to set)'],
    ['retryDelay', 'wait? (a time: a release wakes waiters, so there are neither attempts nor pauses to set)'],
    ['automaticExtensionThreshold', 'renew? (true or false: a lease is renewed at a third of its ttl)'],
  ])('called %s is told what is different here', async (given, told) => {
    await expect(locks.acquire('a', { [given]: 5 })).rejects.toThrow(`got '${given}'; did you mean ${told}`)
  })

  test.each([
    ['driftFactor', 'drift is an option of the engine, as in redis(client, { drift })'],
    ['lockAtMostFor', 'atMost is an option of once'],
  ])('called %s belongs elsewhere under another name', (given, told) => {
    expect(() => createLocks(memory(), { [given]: 5 })).toThrow(`got '${given}'; ${told}`)
  })

  test('given as a number, as other libraries have it, is told where it belongs', async () => {
    await expect(locks.acquire('a', 5000 as never)).rejects.toThrow(
      'options: expected an object, got 5000; a ttl is { ttl: 5000 }',
    )
    await expect(locks.using('a', (() => 1) as never, { ttl: 5000 } as never)).rejects.toThrow(
      'work: expected a function, the last argument of using, got an object',
    )
  })

  test('is not the only slip that is told: inspect takes one name', () => {
    expect(() => locks.inspect(['a'] as never)).toThrow('resource: expected a string, got an array')
  })
})

test('work under way when the locks are closed is not handed out as if its lease had lasted', async () => {
  const locks = createLocks(memory())
  const work = locks.using('a', async () => {
    await locks.close()
    return 'done'
  })
  await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'closed' })
})
