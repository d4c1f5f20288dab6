import { beforeEach, describe, expect, test } from 'vitest'
import { ACQUIRE, READER, RELEASE, type Script } from '../../../src/engines/redis/scripts.ts'
import { bothSubjects, type Subject } from './script-subjects.ts'

const ALL = ['l', 'f', 'q', 's']

function behind(holder: string): unknown {
  return ['behind', holder, expect.any(Number)]
}

describe.each(bothSubjects())('readers on %s', (_name, make) => {
  let subject: Subject
  let beganUs: number

  beforeEach(async () => {
    subject = make()
    await subject.reset()
    beganUs = await subject.nowUs()
  })

  const call = (script: Script, keys: readonly string[], ...args: string[]): Promise<unknown> =>
    subject.run('EVAL', script.text, String(keys.length), ...keys, ...args)
  const proposal = async (): Promise<string> => String(await subject.nowUs())
  const write = async (owner: string): Promise<unknown> =>
    call(ACQUIRE, ['l', 'f'], owner, '30000', await proposal(), '100000')
  const writeRelease = (owner: string): Promise<unknown> =>
    call(RELEASE, ['l', 'f', 'q'], owner, '0', '100000', 'publish', 'c')
  const share = async (owner: string, ttl = 30_000, keys = ALL): Promise<unknown> => {
    const channels = keys === ALL ? ['c'] : ['c', 'c2']
    const args = [`shared:${owner}`, String(ttl), await proposal(), '100000', 'share', 'publish', ...channels]
    return call(ACQUIRE, keys, ...args)
  }
  const enqueue = async (owner: string, number: number, old = ''): Promise<unknown> => {
    const ticket = beganUs + number
    const waitedUs = (await subject.nowUs()) - ticket
    const keys = owner.startsWith('shared:') ? ALL : ['l', 'f', 'q']
    return call(ACQUIRE, keys, owner, String(ticket), String(waitedUs), old, 'enqueue', 'publish', 'c')
  }
  const confirm = (owner: string, token: unknown): Promise<unknown> =>
    call(READER.confirm, ALL, `shared:${owner}`, String(token), '100000')
  const extend = (owner: string, ttl = 30_000): Promise<unknown> =>
    call(READER.extend, ALL, '100000', '0', '1', `shared:${owner}`, String(ttl), '1')
  const release = (owner: string, token = '0'): Promise<unknown> =>
    call(READER.release, ALL, `shared:${owner}`, token, '100000', 'publish', 'pass', 'c')
  const held = (): Promise<unknown> => subject.run('GET', 'l')
  const leftMs = async (): Promise<number> => Number(await subject.run('PTTL', 'l'))

  test('the first one has a number above the last writer, the others have the same, and the next writer has a higher one', async () => {
    const before = Number(await write('w'))
    await writeRelease('w')
    const first = Number(await share('a'))
    expect(first).toBeGreaterThan(before)
    expect(Number(await share('b'))).toBe(first)
    await release('a')
    await release('b')
    expect(Number(await write('w2'))).toBeGreaterThan(first)
  })

  test('the lock is the name of the one that lasts longest, and ends with it', async () => {
    await share('a', 60_000)
    await share('b', 20_000)
    expect(await held()).toBe('shared:a')
    expect(await leftMs()).toBeGreaterThan(50_000)
    await extend('b', 90_000)
    expect(await held()).toBe('shared:b')
    expect(await leftMs()).toBeGreaterThan(80_000)
    await release('b')
    expect(await held()).toBe('shared:a')
    expect(await leftMs()).toBeLessThanOrEqual(60_000)
    expect(await write('w')).toEqual([expect.any(String), 'shared:a', expect.any(Number)])
  })

  test('one that has ended is none, although others go on', async () => {
    const token = await share('a', 20_000)
    await share('b', 60_000)
    subject.pass(30_000)
    expect(await extend('a')).toEqual([0])
    expect(await confirm('a', token)).toEqual([0, '0'])
    expect(await release('a')).toBe(-1)
    expect(await extend('b')).toEqual([1])
    expect(await release('b')).toBe(1)
    expect(await held()).toBe(null)
  })

  test('a repeated request never shortens what was extended', async () => {
    await share('a', 20_000)
    await extend('a', 90_000)
    await share('a', 20_000)
    expect(await leftMs()).toBeGreaterThan(80_000)
  })

  test('a confirmation says yes at its number, higher above it, and no to whoever is not among them', async () => {
    const token = Number(await share('a'))
    expect(await confirm('a', token + 5)).toEqual([1, String(token + 5)])
    expect(await share('b')).toBe(String(token + 5))
    expect(await confirm('b', token)).toEqual([2, String(token + 5)])
    expect(await confirm('c', token + 5)).toEqual([0, '0'])
  })

  test('whose lock was taken away are none, also when others read after that', async () => {
    await share('a')
    await subject.run('DEL', 'l')
    expect(await extend('a')).toEqual([0])
    expect(await confirm('a', '9000000000000000')).toEqual([0, '0'])
    await share('b')
    expect(await extend('a')).toEqual([0])
    expect(await release('a')).toBe(-1)
    expect(await held()).toBe('shared:b')
  })

  test('a release lifts the counter, of a lock that is its own or free, and of no other', async () => {
    await share('a')
    await release('a', '9000000000000000')
    expect(await subject.run('GET', 'f')).toBe('9000000000000000')
    const writer = await write('w')
    expect(writer).toBe('9000000000000001')
    await release('a', '9000000000000005')
    expect(await subject.run('GET', 'f')).toBe('9000000000000001')
  })

  test('none joins while a writer is in line before it; when the writer gives up, those behind it are told', async () => {
    await share('a')
    expect(await enqueue('w', 2)).toEqual(behind('shared:a'))
    expect(await share('x')).toEqual([expect.any(String), 'shared:a', expect.any(Number)])
    expect(await enqueue('shared:b', 3)).toEqual(behind('shared:a'))
    // Came before the writer, although it asks after it.
    expect(await enqueue('shared:c', 1)).toEqual(['offered'])
    expect(subject.told).toEqual([])
    await writeRelease('w')
    expect(subject.told).toEqual(['offered:shared:c', 'offered:shared:b'])
    expect(typeof (await share('b'))).toBe('string')
    expect(typeof (await share('c'))).toBe('string')
  })

  test('when the first in line takes its offer, the next ones are told, up to the first writer', async () => {
    await write('w')
    const waits = ['shared:a', 'shared:b', 'shared:c', 'w2', 'shared:d']
    for (const [index, name] of waits.entries()) expect(await enqueue(name, index)).toEqual(behind('w'))
    await writeRelease('w')
    expect(await held()).toBe('offered:shared:a')
    expect(await share('b')).toEqual([expect.any(String), 'offered:shared:a', expect.any(Number)])
    expect(await share('a')).toEqual(expect.any(String))
    expect(subject.told).toEqual(['offered:shared:a', 'offered:shared:b', 'offered:shared:c'])
    for (const name of ['b', 'c']) expect(await share(name)).toEqual(expect.any(String))
    expect(await share('d')).toEqual([expect.any(String), 'shared:c', expect.any(Number)])
    for (const name of ['a', 'b', 'c']) await release(name)
    expect(await held()).toBe('offered:w2')
  })

  test('a place that another owner takes over gives up the lease of the one before it', async () => {
    await share('a')
    expect(await enqueue('w', 1)).toEqual(behind('shared:a'))
    expect(await enqueue('shared:b', 2, 'shared:a')).toEqual(behind('offered:w'))
    expect(await extend('a')).toEqual([0])
  })

  test('several resources have one number for all, and are shared all or none', async () => {
    const both = ['l', 'f', 'l2', 'f2', 'q', 'q2', 's', 's2']
    const alone = Number(await share('a'))
    const together = Number(await share('b', 30_000, both))
    expect(together).toBeGreaterThan(alone)
    expect(await subject.run('GET', 'f')).toBe(await subject.run('GET', 'f2'))
    await call(READER.release, both, 'shared:b', '0', '100000', 'publish', 'pass', 'c', 'c2')
    expect(await subject.run('EXISTS', 'l2')).toBe(0)
    expect(await held()).toBe('shared:a')
    await call(ACQUIRE, ['l2', 'f2'], 'w', '30000', await proposal(), '100000')
    expect(await share('c', 30_000, both)).toEqual([expect.any(String), 'w', expect.any(Number)])
    expect(await extend('c')).toEqual([0])
  })
})
