import { expect, test } from 'vitest'
import { parseAddress } from '../../../src/cli/engines/address.ts'
import { keepSecret, withoutSecrets } from '../../../src/cli/output.ts'
import { noteSecrets, redacted } from '../../../src/cli/settings.ts'
import { span } from '../../../src/duration.ts'

const REDIS = { port: 6379, example: 'redis://host' }

test.each([
  ['redis://host:6379/0', 'redis://host:6379/0'],
  ['redis://user@host', 'redis://user@host'],
  ['redis://user:pw@host', 'redis://user:***@host'],
  ['redis://:pw@a:1,b:2,c:3', 'redis://:***@a:1,b:2,c:3'],
  ['redis//:pw@host', 'redis//:***@host'],
  ['user:pw@host', 'user:***@host'],
  ['redis://:p/w?x#y@host', 'redis://:***@host'],
  ['redis://:p@w@host', 'redis://:***@host'],
  ['postgres://host/db?password=pw&sslmode=require', 'postgres://host/db?password=***&sslmode=require'],
  ['consul://host?token=pw', 'consul://host?token=***'],
  ['redis://u:p1@a:1,b,u:p2@[::1]:3/2?x=y', 'redis://u:***@a:1,b,u:***@[::1]:3/2?x=y'],
  ['redis+sentinel://:pw@a,b/m?sentinelPassword=pw2', 'redis+sentinel://:***@a,b/m?sentinelPassword=***'],
  ['redis://host?sentinel_password=pw', 'redis://host?sentinel_password=***'],
  ['mongodb://host/?pwd=pw', 'mongodb://host/?pwd=***'],
  ['http://host?x=y&apikey=pw&api-key=pw#z', 'http://host?x=y&apikey=***&api-key=***#z'],
  ['http://host?ACCESS_TOKEN=pw;client_secret=pw', 'http://host?ACCESS_TOKEN=***;client_secret=***'],
  [
    'mongodb://h/?authMechanismProperties=SERVICE_NAME:x,AWS_SESSION_TOKEN:s&tls=true',
    'mongodb://h/?authMechanismProperties=***&tls=true',
  ],
  ['mongodb://h/?tlsCertificateKeyFilePassword=pw', 'mongodb://h/?tlsCertificateKeyFilePassword=***'],
  ['redis-sentinel://u:secret', 'redis-sentinel://u:***'],
  ['redis-sentinel://u:p@a,b', 'redis-sentinel://u:***@a,b'],
  // Where it cannot be said what is a password, nothing before the last @ is shown.
  ['redis://u:p@q,r@host', 'redis://u:***@host'],
  ['redis://u:12,34@host', 'redis://u:***@host'],
  ['redis://u:p@a,u:q:r@b,c', 'redis://u:***@b,c'],
])('%s is shown as %s', (url, shown) => {
  expect(redacted(url)).toBe(shown)
})

test.each([':', '%3A'])('a session token of MongoDB behind %s is removed from every text', (colon) => {
  const token = `Fw0${colon}x==`
  const url = `mongodb://h/?authMechanismProperties=SERVICE_NAME${colon}mongo,AWS_SESSION_TOKEN${colon}${token},A${colon}b`
  expect(noteSecrets(url)).toBe(true)
  expect(withoutSecrets(`the token ${token} of mongo is refused`)).toBe('the token *** of mongo is refused')
  expect(noteSecrets('mongodb://h/?authMechanismProperties=SERVICE_NAME:mongo')).toBe(false)
})

test('a secret is removed from every text, as it is, decoded and encoded', () => {
  keepSecret('p%40ss')
  expect(withoutSecrets('login with p%40ss or p@ss failed')).toBe('login with *** or *** failed')
})

test.each([
  ['1', 'redis://u:1@127.0.0.1:1/1 took 11 ms', 'redis://u:***@127.0.0.1:1/1 took 11 ms'],
  ['e', 'the key e: password=e, ?pwd=e&x=e', 'the key e: password=***, ?pwd=***&x=e'],
  ['x+.', '"token":"x+." is not xx.', '"token":"***" is not xx.'],
  ['abc', "password 'abc' of abc, apikey=abcd", "password 'abc' of abc, apikey=abcd"],
])('the short secret %s is hidden only where it stands as one', (secret, text, shown) => {
  keepSecret(secret)
  expect(withoutSecrets(text)).toBe(shown)
})

test('an address has several hosts, defaults and parameters', () => {
  const address = parseAddress('redis://us%3Aer:p%40ss@a,[::1]:7,c:9/3?prefix=x%3A&drift=0.02', REDIS)
  expect(address).toMatchObject({
    scheme: 'redis',
    user: 'us:er',
    password: 'p@ss',
    hosts: [
      { host: 'a', port: 6379 },
      { host: '::1', port: 7 },
      { host: 'c', port: 9 },
    ],
    path: '3',
  })
  expect(address.parameters.take(['prefix', 'drift', 'absent'])).toEqual({
    prefix: 'x:',
    drift: 0.02,
  })
  expect(() => address.parameters.done()).not.toThrow()
})

test('each host has its own login, or that of the first', () => {
  const url = 'redis://u:p@a,b,:q%2Cr@c,d@e'
  expect(parseAddress(url, { ...REDIS, logins: 'each' })).toMatchObject({
    hosts: ['a', 'b', 'c', 'e'].map((host) => ({ host, port: 6379 })),
    logins: [
      { user: 'u', password: 'p' },
      { user: 'u', password: 'p' },
      { user: undefined, password: 'q,r' },
      { user: 'd', password: undefined },
    ],
  })
  expect(() => parseAddress(url, REDIS)).toThrow('--engine: expected one login for all hosts, before the first')
})

test('a password that is not encoded is refused, and not shown', () => {
  for (const url of ['redis://u:hu,sh@a', 'redis://u:hu@sh@a', 'redis://u:hu@[sh@a'])
    expect(() => parseAddress(url, { ...REDIS, logins: 'each' })).toThrow(
      '--engine: expected host, host:port or user:password@host:port, got redis://u:***@a',
    )
})

test('a parameter that nobody asks for is refused', () => {
  const { parameters } = parseAddress('redis://:pw@a?prefux=x', REDIS)
  parameters.take(['prefix'])
  expect(() => parameters.done()).toThrow("unknown parameter 'prefux' in redis://:***@a?prefux=x; did you mean prefix?")
})

test.each(['redis://', 'redis://a,,b', 'redis://a:b', 'nonsense'])('%s is not an address', (url) => {
  expect(() => parseAddress(url, REDIS)).toThrow(/--engine: expected/)
})

test.each([
  [3, '3 ms'],
  [1500, '1.5 s'],
  [42_000, '42 s'],
  [125_000, '2 min 5 s'],
  [12_000_000, '3 h 20 min'],
])('%d ms are shown as %s', (ms, text) => {
  expect(span(ms)).toBe(text)
})
