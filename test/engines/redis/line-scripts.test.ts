import { beforeEach, describe, expect, test } from 'vitest'
import { OFFER_MS, PLACE_MS } from '../../../src/engines/redis/line-lua.ts'
import { ACQUIRE, CONFIRM, EXTEND, RELEASE, type Script } from '../../../src/engines/redis/scripts.ts'
import { bothSubjects, type Subject } from './script-subjects.ts'

describe.each(bothSubjects())('the line on %s', (_name, make) => {
  let subject: Subject
  /** When the waits of these began, before all commands of a test. */
  let beganUs: number

  beforeEach(async () => {
    subject = make()
    await subject.reset()
    beganUs = await subject.nowUs()
  })

  const call = (script: Script, keys: readonly string[], ...args: string[]): Promise<unknown> =>
    subject.run('EVAL', script.text, String(keys.length), ...keys, ...args)
  const proposal = async (): Promise<string> => String(await subject.nowUs())
  const acquire = async (owner: string): Promise<unknown> =>
    call(ACQUIRE, ['l', 'f'], owner, '30000', await proposal(), '100000')
  const claim = async (owner: string): Promise<unknown> =>
    call(ACQUIRE, ['l', 'f', 'q'], owner, '30000', await proposal(), '100000', 'claim')
  const enqueue = async (owner: string, number: number, old = '', keys = ['l', 'f', 'q']): Promise<unknown> => {
    const ticket = beganUs + number
    const waitedUs = (await subject.nowUs()) - ticket
    const channels = keys.length === 3 ? ['c'] : ['c', 'c2']
    return call(ACQUIRE, keys, owner, String(ticket), String(waitedUs), old, 'enqueue', 'publish', ...channels)
  }
  const release = (owner: string): Promise<unknown> =>
    call(RELEASE, ['l', 'f', 'q'], owner, '0', '100000', 'publish', 'c')
  const held = (): Promise<unknown> => subject.run('GET', 'l')

  test('a release offers the lock to the first in line, and tells it', async () => {
    await acquire('a')
    expect(await enqueue('b', 2)).toEqual(['behind', 'a', expect.any(Number)])
    expect(await enqueue('c', 1)).toEqual(['behind', 'a', expect.any(Number)])
    expect(await release('a')).toBe(0)
    expect(await held()).toBe('offered:c')
    expect(subject.told).toEqual(['offered:c'])
    expect(await enqueue('c', 1)).toEqual(['offered'])
    expect(await enqueue('b', 2)).toEqual(['behind', 'offered:c', expect.any(Number)])
  })

  test('nobody else gets an offered lock, and its heir gets it with a higher number', async () => {
    const first = Number(await acquire('a'))
    await enqueue('b', 1)
    await release('a')
    expect(await acquire('x')).toEqual([String(first), 'offered:b', expect.any(Number)])
    expect(await claim('x')).toEqual([String(first), 'offered:b', expect.any(Number)])
    const second = Number(await claim('b'))
    expect(second).toBeGreaterThan(first)
    expect(await held()).toBe('b')
    expect(Number(await subject.run('PTTL', 'l'))).toBeGreaterThan(OFFER_MS)
  })

  test('an offer is no lease: it can be neither confirmed nor extended', async () => {
    const token = String(await acquire('a'))
    await enqueue('b', 1)
    await release('a')
    expect(await call(CONFIRM, ['l', 'f'], 'b', token, '100000')).toEqual([0, '0'])
    expect(await call(EXTEND, ['l', 'f'], '100000', '0', '1', 'b', '30000', token)).toEqual([0])
  })

  test('a claim takes its owner out of line, and a repeated one changes nothing', async () => {
    await acquire('a')
    await enqueue('b', 1)
    await release('a')
    const token = String(await claim('b'))
    // Marked as one that has been there before.
    expect(await claim('b')).toBe(`+${token}`)
    expect(await enqueue('b', 1)).toEqual(['offered'])
    expect(await subject.run('EXISTS', 'q')).toBe(0)
    expect(await release('b')).toBe(1)
    expect(await held()).toBeNull()
  })

  test('a release without a line deletes the lock and wakes those who listen', async () => {
    await acquire('a')
    expect(await release('a')).toBe(1)
    expect(await held()).toBeNull()
    expect(subject.told).toEqual(['a'])
  })

  test('a release of somebody else passes nothing on', async () => {
    await acquire('a')
    await enqueue('b', 1)
    expect(await release('x')).toBe(-1)
    expect(await held()).toBe('a')
  })

  test('an offer goes over to whoever has waited longer', async () => {
    await acquire('a')
    await enqueue('c', 3)
    await release('a')
    expect(await held()).toBe('offered:c')
    expect(await enqueue('b', 2)).toEqual(['offered'])
    expect(await enqueue('d', 4)).toEqual(['behind', 'offered:b', expect.any(Number)])
    expect(await claim('c')).toEqual([expect.any(String), 'offered:b', expect.any(Number)])
  })

  test('a lock that is free is offered to the first who comes to the line', async () => {
    expect(await enqueue('b', 1)).toEqual(['offered'])
    expect(await held()).toBe('offered:b')
  })

  test('giving up leaves the line, and passes an offer on', async () => {
    await acquire('a')
    await enqueue('b', 1)
    await enqueue('c', 2)
    await enqueue('d', 3)
    await release('c')
    await release('a')
    expect(await release('b')).toBe(-1)
    expect(await held()).toBe('offered:d')
    await release('d')
    expect(await held()).toBeNull()
    expect(await subject.run('EXISTS', 'q')).toBe(0)
  })

  test('an heir that does not come is skipped when its offer is over', async () => {
    await acquire('a')
    await enqueue('b', 1)
    await enqueue('c', 2)
    await release('a')
    subject.pass(OFFER_MS + 50)
    expect(await enqueue('c', 2)).toEqual(['offered'])
    expect(await claim('b')).toEqual([expect.any(String), 'offered:c', expect.any(Number)])
  })

  test('an heir that comes again keeps its offer', async () => {
    await acquire('a')
    await enqueue('b', 1)
    await enqueue('c', 2)
    await release('a')
    subject.pass(OFFER_MS - 500)
    expect(await enqueue('b', 1)).toEqual(['offered'])
    subject.pass(OFFER_MS - 500)
    expect(await enqueue('c', 2)).toEqual(['behind', 'offered:b', expect.any(Number)])
  })

  test('a place that nobody has come to for its time is skipped, and the line ends by itself', async () => {
    await acquire('a')
    await enqueue('b', 1)
    subject.pass(PLACE_MS - 500)
    await enqueue('c', 2)
    subject.pass(600)
    await release('a')
    expect(await held()).toBe('offered:c')
    subject.pass(PLACE_MS + 50)
    expect(await subject.run('EXISTS', 'q')).toBe(0)
    expect(await held()).toBeNull()
  })

  test('another owner takes over a place with its ticket, and what the old one had', async () => {
    await acquire('a')
    await enqueue('b', 1)
    await enqueue('c', 2)
    await release('a')
    await claim('b')
    // Lost elsewhere: it withdraws, and keeps its place in the same step.
    expect(await enqueue('b2', 1, 'b')).toEqual(['offered'])
    expect(await held()).toBe('offered:b2')
    const token = String(await claim('b2'))
    // The same once more, after the claim.
    expect(await enqueue('b2', 1, 'b')).toEqual(['offered'])
    expect(await held()).toBe('b2')
    expect(await claim('b2')).toBe(`+${token}`)
    await release('b2')
    expect(await held()).toBe('offered:c')
  })

  test('a ticket that does not fit the clock is refused with one that does', async () => {
    const nowUs = await subject.nowUs()
    for (const ticket of [nowUs - 100_000_000, nowUs + 100_000_000]) {
      const reply = await call(ACQUIRE, ['l', 'f', 'q'], 'b', String(ticket), '0', '', 'enqueue', 'publish', 'c')
      expect(reply).toEqual(['clock', expect.any(String)])
      expect(Math.abs(Number((reply as string[])[1]) - nowUs)).toBeLessThan(2_000_000)
    }
    expect(await held()).toBeNull()
    expect(await subject.run('EXISTS', 'q')).toBe(0)
  })

  test('several resources are offered one by one, and claimed at once', async () => {
    const both = ['l', 'f', 'l2', 'f2', 'q', 'q2']
    await acquire('a')
    expect(await enqueue('m', 1, '', both)).toEqual(['behind', 'a', expect.any(Number)])
    expect(await subject.run('GET', 'l2')).toBe('offered:m')
    await enqueue('c', 2)
    await release('a')
    expect(await enqueue('m', 1, '', both)).toEqual(['offered'])
    const token = await call(ACQUIRE, both, 'm', '30000', await proposal(), '100000', 'claim')
    expect(Number(token)).toBeGreaterThan(beganUs)
    expect(await held()).toBe('m')
    expect(await subject.run('GET', 'l2')).toBe('m')
    expect(await subject.run('GET', 'f2')).toBe(token)
    expect(await call(RELEASE, both, 'm', '0', '100000', 'publish', 'c', 'c2')).toBe(1)
    expect(await held()).toBe('offered:c')
    expect(await subject.run('GET', 'l2')).toBeNull()
  })

  test('a key of another type in the place of the line keeps nobody from releasing', async () => {
    await acquire('a')
    await subject.run('RPUSH', 'q', 'x')
    await expect(enqueue('b', 1)).rejects.toThrow(/WRONGTYPE/)
    expect(await release('a')).toBe(1)
    expect(await held()).toBeNull()
  })
})
