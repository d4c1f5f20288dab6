import { expect, test } from 'vitest'
import { parseAddress } from '../../../src/cli/engines/address.ts'
import { keepSecret, withoutSecrets } from '../../../src/cli/output.ts'
import { redacted } from '../../../src/cli/settings.ts'
import { span } from '../../../src/duration.ts'

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
])('%s is shown as %s', (url, shown) => {
  expect(redacted(url)).toBe(shown)
})

test('a secret is removed from every text, as it is, decoded and encoded', () => {
  keepSecret('p%40ss')
  expect(withoutSecrets('login with p%40ss or p@ss failed')).toBe('login with *** or *** failed')
})

test('an address has several hosts, defaults and parameters', () => {
  const address = parseAddress('redis://us%3Aer:p%40ss@a,[::1]:7,c:9/3?prefix=x%3A&drift=0.02', 6379)
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

test('a parameter that nobody asks for is refused', () => {
  const { parameters } = parseAddress('redis://:pw@a?prefux=x', 6379)
  parameters.take(['prefix'])
  expect(() => parameters.done()).toThrow("unknown parameter 'prefux' in redis://:***@a?prefux=x; did you mean prefix?")
})

test.each(['redis://', 'redis://a,,b', 'redis://a:b', 'nonsense'])('%s is not an address', (url) => {
  expect(() => parseAddress(url, 6379)).toThrow(/--engine: expected/)
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
