import * as driver from 'node-zookeeper-client'
import { describe, expect, test } from 'vitest'
import { zookeeper } from '../../../../src/engines/zookeeper/index.ts'

function options(options: object): () => unknown {
  return () => zookeeper(driver, 'a:2181', options)
}

describe('zookeeper refuses', () => {
  test.each([
    ['nothing', undefined, 'driver: expected an object, got undefined'],
    [
      'a client',
      driver.createClient('a'),
      'driver: expected the module node-zookeeper-client, got one without createClient; of `import * as`, give its default',
    ],
    [
      'another module',
      { createClient: () => ({}) },
      'driver: expected the module node-zookeeper-client, got one without ACL.OPEN_ACL_UNSAFE',
    ],
  ])('%s as its driver', (_, value, message) => {
    expect(() => zookeeper(value as unknown as typeof driver, 'a:2181')).toThrow(new TypeError(message))
  })

  test.each([undefined, 5, '', '/chroot', 'a:2181,', 'a:2181, b:2181', '[::1]:2181', 'a:b', 'a//b'.slice(1), 'a/b/ c'])(
    'the connection string %j',
    (servers) => {
      expect(() => zookeeper(driver, servers as string)).toThrow(TypeError)
      expect(() => zookeeper(driver, servers as string)).toThrow(/^servers: expected a connection string such as/)
    },
  )

  test.each(['', '/', 'ringfence', '/a/', '/a//b', '/..', '/a/./b', '/a\u0000', 5])('the path %j', (path) => {
    expect(options({ path })).toThrow(TypeError)
    expect(options({ path })).toThrow(/^path: expected an absolute path such as '\/ringfence', got/)
  })

  test.each([
    [{ maxTtl: '1ms' }, RangeError, "maxTtl: expected 50 ms to 24 h, got '1ms'"],
    [{ maxTtl: {} }, TypeError, 'maxTtl: expected a number of milliseconds or a text'],
    [{ requestTimeout: 0 }, RangeError, 'requestTimeout: expected 1 ms to 60 s, got 0'],
    [{ acl: 'me' }, TypeError, "acl: expected 'creator' or 'anyone', got 'me'"],
    [{ acl: 'creator' }, TypeError, "acl: expected 'anyone' without auth, got 'creator'"],
    [{ sessionTimeout: 5 }, TypeError, 'options: expected path, maxTtl, auth, acl, requestTimeout, clock, got '],
  ])('%j', (given, type, message) => {
    expect(options(given)).toThrow(type)
    expect(options(given)).toThrow(message)
  })

  test.each([{ scheme: 'digest' }, { scheme: '', auth: 'alice:secret' }, { scheme: 'digest', auth: ['alice:secret'] }])(
    'credentials such as %j, without showing them',
    (auth) => {
      expect(options({ auth })).toThrow(
        new TypeError(
          "auth: expected { scheme: 'digest', auth: 'user:password' }, got something else (not shown, as it may be a password)",
        ),
      )
    },
  )
})

describe('zookeeper takes', () => {
  test.each([
    ['a', 'zookeeper:/ringfence'],
    ['a:2181,b:2182,c', 'zookeeper:/ringfence'],
    ['a:2181/app', 'zookeeper:/app/ringfence'],
    ['a:2181/app/prod', 'zookeeper:/app/prod/ringfence'],
    ['a:2181/', 'zookeeper:/ringfence'],
  ])('the connection string %s, and knows whose tokens these are', (servers, identity) => {
    expect(zookeeper(driver, servers).identity).toBe(identity)
  })
})
