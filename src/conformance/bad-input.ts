import assert from 'node:assert/strict'
import type { PermitLease } from '../lease.ts'
import { byteLength } from '../platform.ts'
import { collect, type Cases } from './fixture.ts'

/** The longest name, in bytes of UTF-8. */
const MOST_BYTES = 1024

/** What locks refuse on every engine, and what is left of it: nothing. */
export const BAD_INPUT: Cases = {
  async 'a name of 1024 bytes is locked as any other, and a longer one is refused and leaves nothing'(fixture) {
    const { one, two } = await fixture.rivals()
    for (const letter of ['x', '/', '%', 'ü', '€', '😀']) {
      const [start] = fixture.names(1)
      const name = longest(start!, letter)
      const lease = await one.acquire(name)
      await lease.extend()
      assert.equal(await two.tryAcquire(name), null)
      assert.deepEqual(
        (await collect(two.inspect(name))).map(({ resource, owner }) => [resource, owner]),
        [[name, lease.owner]],
      )
      const refused = {
        name: 'RangeError',
        message: /^resource: expected at most 1024 bytes, got 1025; take a hash of it$/,
      }
      for (const locks of [one, two]) {
        await assert.rejects(locks.acquire(`${name}+`), refused)
        await assert.rejects(locks.tryAcquire([name, `${name}+`]), refused)
      }
      assert.equal(await lease.release(), true)
      assert.deepEqual(await collect(one.inspect(name)), [])
    }
  },
  async 'a call that finds no permit is told when a holder counts another number of them'(fixture) {
    const { one: many, two: few, name } = await fixture.rivals()
    const held: PermitLease[] = []
    for (let permit = 0; permit < 3; permit++) held.push(await many.semaphore(name, 3).acquire())
    const pool = few.semaphore(name, 2)
    assert.equal(await pool.tryAcquire(), null)
    const message = /; a holder counts 3 permits and this process 2: give all of them the same number$/
    await assert.rejects(pool.acquire({ wait: 0 }), { code: 'HELD', message })
    for (const permits of [0, 1.5, 1001]) {
      const refused = { name: 'RangeError', message: /^permits: expected a whole number from 1 to 1000, got / }
      assert.throws(() => few.semaphore(name, permits), refused)
    }
    for (const lease of held) assert.equal(await lease.release(), true)
    for (const { permit } of held) assert.deepEqual(await collect(few.inspect(`${name}#${permit}`)), [])
  },
}

/** The same for an engine whose leases can move. */
export const BAD_TICKETS: Cases = {
  async 'a ticket of another engine, and one that makes no sense, is refused and leaves the lease as it is'(fixture) {
    const { one, two } = await fixture.rivals()
    const names = fixture.names(2)
    await using lease = await one.acquire(names)
    const json = lease.toJSON()
    for (const [changed, refused] of [
      [
        { engine: 'carrier-pigeon:' },
        { name: 'RangeError', message: /^lease\.engine: expected '.*', .* adopt it with locks of / },
      ],
      [
        { over: 'banana' },
        { name: 'TypeError', message: /^lease\.over: expected stolen, .* got 'banana'; give adopt/ },
      ],
      [{ owner: `${lease.owner}x` }, { code: 'LEASE_LOST', reason: 'gone' }],
    ] as const) {
      await assert.rejects(two.adopt({ ...json, ...changed } as typeof json), refused)
      await lease.extend()
      assert.equal(await two.tryAcquire(names[0]!), null)
    }
  },
}

function longest(start: string, letter: string): string {
  const count = Math.floor((MOST_BYTES - byteLength(start)) / byteLength(letter))
  const name = start + letter.repeat(count)
  return name + 'x'.repeat(MOST_BYTES - byteLength(name))
}
