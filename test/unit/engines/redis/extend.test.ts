import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Deadlines } from '../../../../src/deadlines.ts'
import type { LeaseRef } from '../../../../src/engine.ts'
import { extendOnQuorum } from '../../../../src/engines/redis/extend.ts'
import type { RedisNode } from '../../../../src/engines/redis/node.ts'
import { OpenRequests } from '../../../../src/engines/redis/cleanup.ts'
import { quorumOf } from '../../../../src/engines/redis/votes.ts'
import { ManualClock } from '../../../../harness/manual-clock.ts'
import { watched } from '../../bench.ts'

type Say = 'yes' | 'no' | 'fail' | 'never'
interface Reply {
  readonly say: Say
  readonly delayMs: number
}

const LEASE: LeaseRef = { resources: ['a'], owner: 'o', token: 5n, ttlMs: 1000 }

const makeOpen = (): OpenRequests => new OpenRequests(new Deadlines(new ManualClock()))

function extending(replies: readonly Reply[], open = makeOpen()) {
  const clock = new ManualClock(0)
  const repaired: number[] = []
  const nodes = replies.map(({ say, delayMs }, index) => ({
    label: `n${index}`,
    client: { cluster: false },
    extendStep: () => ({}),
    extend: () =>
      new Promise<readonly boolean[]>((resolve, reject) => {
        if (say === 'never') return
        clock.timer(() => (say === 'fail' ? reject(new Error('down')) : resolve([say === 'yes'])), delayMs)
      }),
  })) as unknown as readonly RedisNode[]
  const answer = watched(
    extendOnQuorum(nodes, [LEASE], {
      deadlines: new Deadlines(clock),
      timeoutMs: 100,
      open,
      failure: (failures) => new Error(failures.map(({ node, cause }) => `${node}: ${cause.message}`).join('; ')),
      repair: (index) => void repaired.push(index),
    }),
  )
  return { clock, answer, repaired, open }
}

/** Answers come after at least a millisecond, so that there is a moment before. */
const reply = fc.record({
  say: fc.constantFrom<Say>('yes', 'no', 'fail', 'never'),
  delayMs: fc.integer({ min: 1, max: 99 }),
})

/** As many leases as sizes, each of that many resources. */
const sized = (sizes: readonly number[], shared: boolean): LeaseRef[] =>
  sizes.map((size, i) => ({
    ...LEASE,
    owner: `${i}`,
    shared,
    resources: Array.from({ length: size }, (_, n) => `${i}.${n}`),
  }))

describe('extending on a quorum', () => {
  test('is held, lost or unknown by the answers alone, for any number of nodes and any order', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(reply, { minLength: 1, maxLength: 9 }), async (replies) => {
        const quorum = quorumOf(replies.length)
        const said = (say: Say): number => replies.filter((reply) => reply.say === say).length
        const { clock, answer } = extending(replies)
        await clock.advance(100)
        const kind = said('yes') >= quorum ? 'held' : said('no') > replies.length - quorum ? 'lost' : 'unknown'
        expect(answer.value).toMatchObject([{ kind }])
      }),
    )
  })

  test('asks for a bounded number of resources in one call, and every lease has its own answer', async () => {
    const ones = Array.from({ length: 200 }, () => 1)
    const leases = [...sized([...ones, 100, 100, 100, 100, 100], false), ...sized(ones, true)]
    const calls: number[] = []
    const node = {
      label: 'n0',
      client: { cluster: false },
      extendStep: () => ({}),
      extend: async (some: readonly LeaseRef[]) => {
        calls.push(some.flatMap(({ resources }) => resources).length)
        return some.map(({ owner }) => Number(owner) % 2 === 0)
      },
    } as unknown as RedisNode
    const answers = await extendOnQuorum([node], leases, {
      deadlines: new Deadlines(new ManualClock()),
      timeoutMs: 100,
      open: makeOpen(),
      failure: () => new Error('failed'),
      repair: () => undefined,
    })
    expect(calls).toEqual([200, 200, 200, 100, 64, 64, 64, 8])
    expect(answers.map(({ kind }) => kind)).toEqual(
      leases.map(({ owner }) => (Number(owner) % 2 === 0 ? 'held' : 'lost')),
    )
  })

  test('is answered as soon as it is certain, and not before', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(reply, { minLength: 1, maxLength: 7 }), async (replies) => {
        const quorum = quorumOf(replies.length)
        const times = (say: Say): number[] =>
          replies
            .filter((reply) => reply.say === say)
            .map(({ delayMs }) => delayMs)
            .sort((a, b) => a - b)
        const heldAt = times('yes')[quorum - 1] ?? Infinity
        const lostAt = times('no')[replies.length - quorum] ?? Infinity
        const allAt = replies.some(({ say }) => say === 'never')
          ? 100
          : Math.max(...replies.map(({ delayMs }) => delayMs))
        const certainAt = Math.min(heldAt, lostAt, allAt)
        const { clock, answer } = extending(replies)
        await clock.advance(certainAt - 0.5)
        expect(answer.state).toBe('pending')
        await clock.advance(0.5)
        expect(answer.state).toBe('resolved')
      }),
    )
  })

  test('tells in doubt which nodes failed and why', async () => {
    const { clock, answer } = extending([
      { say: 'yes', delayMs: 1 },
      { say: 'fail', delayMs: 1 },
      { say: 'never', delayMs: 0 },
    ])
    await clock.advance(100)
    expect(answer.value).toEqual([{ kind: 'unknown', cause: new Error('n1: down; n2: no answer within 100 ms') }])
  })

  test('puts the key back on a node that lost it, when the lease is held', async () => {
    const { clock, repaired } = extending([
      { say: 'yes', delayMs: 1 },
      { say: 'no', delayMs: 50 },
      { say: 'yes', delayMs: 2 },
    ])
    await clock.advance(100)
    expect(repaired).toEqual([1])
  })

  test.each([
    ['lost', ['no', 'no', 'yes']],
    ['in doubt', ['no', 'fail', 'yes']],
  ] as const)('repairs nothing when the lease is %s', async (_what, says) => {
    const { clock, repaired, open } = extending(says.map((say) => ({ say, delayMs: 1 })))
    await clock.advance(100)
    expect(repaired).toEqual([])
    expect(open.size).toBe(0)
  })

  test('does not count a repaired node as proof: a rival may have come and gone there', async () => {
    const open = makeOpen()
    open.begin('o').repaired.add(0)
    const { clock, answer } = extending(
      ['yes', 'yes', 'no'].map((say) => ({ say: say as Say, delayMs: 1 })),
      open,
    )
    await clock.advance(100)
    expect(answer.value).toMatchObject([{ kind: 'lost' }])
  })

  test('counts a repaired node again once a quorum of others has proved the lease while it said yes', async () => {
    const open = makeOpen()
    const requests = open.begin('o')
    requests.repaired.add(0)
    const first = extending(
      ['yes', 'yes', 'yes'].map((say) => ({ say: say as Say, delayMs: 1 })),
      open,
    )
    await first.clock.advance(100)
    expect(first.answer.value).toMatchObject([{ kind: 'held' }])
    expect(requests.repaired.size).toBe(0)
    const second = extending(
      ['yes', 'yes', 'no'].map((say) => ({ say: say as Say, delayMs: 1 })),
      open,
    )
    await second.clock.advance(100)
    expect(second.answer.value).toMatchObject([{ kind: 'held' }])
  })

  test('keeps no requests once every node has answered', async () => {
    const { clock, open } = extending(['yes', 'yes', 'yes'].map((say) => ({ say: say as Say, delayMs: 5 })))
    expect(open.size).toBe(1)
    await clock.advance(100)
    expect(open.size).toBe(0)
  })
})
