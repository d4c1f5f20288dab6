import { describe, expect, test } from 'vitest'
import { bench, neighbour } from './bench.ts'

describe('status', () => {
  test('is null where nobody has it, and otherwise who does, with the note', async () => {
    const it = bench({ label: 'host:1' })
    expect(await it.locks.status('a')).toBeNull()
    const { owner, token } = await it.locks.acquire('a', { ttl: '10s', note: 'invoice 42' })
    expect(await neighbour(it).status('a')).toEqual({
      holders: [{ resource: 'a', owner, token, note: 'invoice 42', remainingMs: 10_000 }],
    })
  })

  test('has everyone who shares it', async () => {
    const it = bench()
    const one = await it.locks.acquire('a', { shared: true })
    const two = await neighbour(it).acquire('a', { shared: true })
    const status = await it.locks.status('a')
    expect(status?.holders.map(({ owner, shared }) => [owner, shared])).toEqual([
      [one.owner, true],
      [two.owner, true],
    ])
  })

  test('refuses what is no name', async () => {
    await expect(bench().locks.status('')).rejects.toThrow('resource: expected a name, got an empty string')
  })
})

describe('forceRelease', () => {
  test('ends the lease of that token, which its holder finds out at its next renewal', async () => {
    const it = bench({ ttl: '9s' })
    const lease = await it.locks.acquire('a')
    const other = neighbour(it)
    expect(await other.forceRelease('a', { token: lease.token + 1n })).toBe(false)
    expect(await other.forceRelease('b', { token: lease.token })).toBe(false)
    expect(await other.forceRelease('a', { token: lease.token, owner: 'someone else' })).toBe(false)
    expect(lease.held).toBe(true)
    expect(await other.forceRelease('a', { token: lease.token })).toBe(true)
    await it.clock.advance(3500)
    expect(lease.toJSON()).toMatchObject({ held: false, over: 'stolen' })
  })

  test('leaves a later holder alone', async () => {
    const it = bench()
    const first = await it.locks.acquire('a')
    await first.release()
    const second = await it.locks.acquire('a')
    expect(await it.locks.forceRelease('a', { token: first.token })).toBe(false)
    await second.extend()
  })

  test('leaves one alone that came between its look and its release', async () => {
    const it = bench()
    const first = await it.locks.acquire('a')
    let second: Awaited<ReturnType<typeof it.locks.tryAcquire>> = null
    it.engine.next.release.push(async (_lease, pass) => {
      await it.engine.inner.release({ resources: ['a'], owner: first.owner, token: first.token, ttlMs: 1 })
      second = await neighbour(it).tryAcquire('a')
      return pass()
    })
    expect(await it.locks.forceRelease('a', { token: first.token })).toBe(false)
    await second!.extend()
  })

  test('of one who shares needs the owner where the token is that of several', async () => {
    const it = bench()
    const one = await it.locks.acquire('a', { shared: true })
    const two = await neighbour(it).acquire('a', { shared: true })
    const { token } = two
    expect(token).toBe(one.token)
    await expect(it.locks.forceRelease('a', { token })).rejects.toThrow(
      /^owner: expected one, because 2 share 'a' with the token 1, got none; end them one by one$/,
    )
    expect(await it.locks.forceRelease('a', { token, owner: one.owner })).toBe(true)
    await two.extend()
    expect(await it.locks.forceRelease('a', { token })).toBe(true)
    expect(await it.locks.status('a')).toBeNull()
  })

  test('refuses what is no token', async () => {
    const { locks } = bench()
    for (const [token, next] of [
      [7, "got 7; write { token: BigInt('7') }"],
      ['7', "got '7'; write { token: BigInt('7') }"],
      [undefined, "got undefined; locks.status('a') has it, in the holder that you mean"],
    ]) {
      await expect(locks.forceRelease('a', { token } as never)).rejects.toThrow(
        `token: expected a bigint, as status() and inspect() give it, ${next}`,
      )
    }
    await expect(locks.forceRelease('a', {} as never)).rejects.toThrow(/^token: expected a bigint/)
    await expect(locks.forceRelease('a', undefined as never)).rejects.toThrow(
      "options: expected { token } of the lease to end, got undefined; locks.status('a') has it",
    )
    await expect(locks.forceRelease('a', { token: 1n, tokn: 2 } as never)).rejects.toThrow(
      /^options: expected token, owner/,
    )
  })
})
