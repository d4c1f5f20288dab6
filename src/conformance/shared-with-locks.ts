import assert from 'node:assert/strict'
import { sleep, systemClock } from '../clock.ts'
import type { Locks } from '../locks.ts'
import type { Cases, Fixture } from './fixture.ts'

/** What the locks of an engine do that has shared leases. */
export const SHARED_WITH_LOCKS: Cases = {
  async 'work of several processes shares a resource, and no writer gets in meanwhile'(fixture) {
    const { one, two, name } = await fixture.rivals()
    await allInside(fixture, [one, two, one], name, async () => {
      assert.equal(await one.tryAcquire(name), null)
      assert.equal(await two.tryAcquire(name), null)
    })
    await using writer = await one.tryAcquire(name)
    assert.ok(writer !== null)
  },
  async 'tryAcquire of a reader gives a lease beside other readers, and null while a writer has it'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const first = await one.tryAcquire(name, { shared: true })
    const second = await two.tryAcquire(name, { shared: true })
    assert.ok(first?.held === true && second?.held === true)
    assert.equal(await first.release(), true)
    assert.equal(await second.release(), true)
    await using writer = await two.acquire(name)
    assert.ok(writer.token > second.token)
    for (const locks of [one, two]) assert.equal(await locks.tryAcquire(name, { shared: true }), null)
  },
  async 'a writer that waits gets in when the last reader is done, in its own process and in others'(fixture) {
    const { one, two } = await fixture.rivals()
    for (const locks of [one, two]) {
      const name = fixture.name()
      const readers = [await one.acquire(name, { shared: true }), await two.acquire(name, { shared: true })]
      const waiting = locks.acquire(name, { wait: '20s' })
      await keptOut(fixture, locks, name)
      assert.equal(await readers[0]!.release(), true)
      assert.equal(readers[1]!.held, true)
      assert.equal(await readers[1]!.release(), true)
      await using writer = await waiting
      for (const { token } of readers) assert.ok(writer.token > token)
    }
  },
  async 'readers that wait get in together when the writer is done'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const writer = await one.acquire(name)
    const inside = allInside(fixture, [one, two, one, two, two], name, (tokens) => {
      for (const token of tokens) assert.ok(token > writer.token)
    })
    assert.equal(await writer.release(), true)
    await inside
  },
  async 'a writer is not starved by readers of another process who overlap'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const stream = { entered: 0, isOver: false }
    // Each stays until the next one has come, so there is no gap as long as later readers get in.
    const read = async (): Promise<void> => {
      while (!stream.isOver) {
        await two.using(name, { shared: true, wait: '20s' }, async () => {
          const mine = ++stream.entered
          const until = systemClock.monotonicMs() + 1000
          while (stream.entered === mine && !stream.isOver && systemClock.monotonicMs() < until)
            await sleep(systemClock, 2)
        })
      }
    }
    const readers = Promise.allSettled([read(), read(), read()])
    fixture.onClose(async () => {
      stream.isOver = true
      await readers
    })
    await fixture.eventually('readers to overlap', () => stream.entered > 5)
    const enteredBefore = await one.using(name, { wait: '20s' }, () => stream.entered)
    await fixture.eventually('readers to get in after the writer', () => stream.entered > enteredBefore)
    stream.isOver = true
    for (const outcome of await readers) if (outcome.status === 'rejected') throw outcome.reason
  },
  async 'sections of readers and writers never overlap, and the tokens of writers grow'(fixture) {
    const { one, two, name } = await fixture.rivals()
    const inside = { readers: 0, writers: 0 }
    let written = 0n
    const section = async (locks: Locks, shared: boolean): Promise<void> => {
      await locks.using(name, { shared, wait: '50s' }, async ({ token }) => {
        const kind = shared ? 'readers' : 'writers'
        inside[kind]++
        assert.ok(inside.writers === 0 || inside.readers + inside.writers === 1, JSON.stringify(inside))
        assert.ok(token > written, `expected more than ${written}, the last writer's, got ${token}`)
        if (!shared) written = token
        await sleep(systemClock, 2)
        inside[kind]--
      })
    }
    await Promise.all(Array.from({ length: 30 }, (_, index) => section(index % 2 === 0 ? one : two, index % 5 < 3)))
  },
  async 'a reader is renewed while it is held'(fixture) {
    const locks = await fixture.locks()
    const name = fixture.name()
    await using lease = await locks.acquire(name, { shared: true, ttl: fixture.shortTtlMs * 3 })
    const until = systemClock.monotonicMs() + fixture.shortTtlMs * 5
    await fixture.eventually('the first ttl to be over', () => systemClock.monotonicMs() > until)
    assert.equal(lease.held, true)
    assert.equal(lease.signal.aborted, false)
  },
}

/** Readers who each stay until all of them are inside; then `meanwhile`. */
async function allInside(
  fixture: Fixture,
  readers: readonly Locks[],
  name: string,
  meanwhile: (tokens: readonly bigint[]) => void | Promise<void>,
): Promise<void> {
  const tokens: bigint[] = []
  let isOver = false
  const work = async ({ token }: { token: bigint }): Promise<void> => {
    tokens.push(token)
    await fixture.eventually('all readers to be inside', () => isOver)
  }
  const sections = Promise.allSettled(readers.map((locks) => locks.using(name, { shared: true, wait: '20s' }, work)))
  try {
    await fixture.eventually('all readers to be inside', () => tokens.length === readers.length)
    await meanwhile(tokens)
  } finally {
    isOver = true
    await sections
  }
  for (const outcome of await sections) if (outcome.status === 'rejected') throw outcome.reason
}

/** Waits until a writer that waits keeps readers of its own process out. */
function keptOut(fixture: Fixture, locks: Locks, name: string): Promise<void> {
  return fixture.eventually('the writer to keep readers out', async () => {
    const lease = await locks.tryAcquire(name, { shared: true })
    await lease?.release()
    return lease === null
  })
}
