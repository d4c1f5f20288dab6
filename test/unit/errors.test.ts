import { describe, expect, test } from 'vitest'
import * as api from '../../src/index.ts'
import {
  EngineError,
  ForeignTokenError,
  GuardError,
  HeldError,
  LeaseLostError,
  QuorumError,
  RingfenceError,
  StaleTokenError,
  WaitTimeoutError,
  type LossReason,
} from '../../src/errors.ts'

const cause = new Error('connection reset')

describe('every error', () => {
  test.each([
    [new HeldError(['a'], 'x@host:1', 1200.4), 'HELD', "'a' is held by x@host:1, for 1.2 s more unless renewed"],
    [
      new HeldError(['a'], `${'0'.repeat(32)}@host:1 (nightly)`, 1200.4),
      'HELD',
      "'a' is held by host:1 (nightly), for 1.2 s more unless renewed",
    ],
    [
      new HeldError(['a'], 'x@host:1', 500, { here: { owner: 'x@host:1', forMs: 1020, isInside: false } }),
      'HELD',
      "'a' is held by this very process for 1.0 s. A lease is not re-entrant: is this call inside of the one that holds it?",
    ],
    [
      new HeldError(['a'], 'x@host:1', 500, { offered: true }),
      'HELD',
      "'a' is offered to x@host:1, the first in line, which has not taken it yet",
    ],
    [new HeldError(['a', 'b']), 'HELD', "'a', 'b' is held by someone else"],
    [new WaitTimeoutError(['a'], 500, 'x@host:1'), 'WAIT_TIMEOUT', "waited 500 ms for 'a', held by x@host:1"],
    [new WaitTimeoutError(['a'], 500), 'WAIT_TIMEOUT', "waited 500 ms for 'a'"],
    [
      new WaitTimeoutError(['a'], 1000, 'x@host:1', { here: { owner: 'x@host:1', forMs: 1020, isInside: false } }),
      'WAIT_TIMEOUT',
      "waited 1 s for 'a', held by this very process for 1.0 s. A lease is not re-entrant: is this call inside of the one " +
        'that holds it?',
    ],
    [
      new WaitTimeoutError(['a'], 1000, 'x@host:1', { here: { owner: 'x@host:1', forMs: 1020, isInside: true } }),
      'WAIT_TIMEOUT',
      "waited 1 s for 'a', held by this very process for 1.0 s; this call is inside of the one that holds it: use that lease, " +
        'or give both calls reentrant: true',
    ],
    [
      new StaleTokenError(['a'], 3n, 5n),
      'STALE_TOKEN',
      "token 3 of 'a' is stale: 5 was seen; stop: a newer holder has taken over",
    ],
    [
      new ForeignTokenError(['a'], 3n, 'etcd:', 'redis:'),
      'FOREIGN_TOKEN',
      "token 3 of 'a' is of the engine 'etcd:', but the store has tokens of 'redis:', which count differently. If " +
        "'etcd:' is the engine that you moved away from, stop. If it is the new one, and no holder of the old one is left, " +
        "adopt(lease, 'redis:')",
    ],
    [new GuardError('no answer', ['a']), 'GUARD', 'no answer'],
    [new EngineError('no answer', ['a']), 'ENGINE', 'no answer'],
    [
      new QuorumError(['a'], { quorum: 2, size: 3, nodes: [{ node: 'one:6379', cause }] }),
      'QUORUM',
      "no quorum for 'a': 2 of 3 nodes needed (one:6379: connection reset)",
    ],
  ])('%s has a code, the resources and a message in words', (error, code, message) => {
    expect(error).toBeInstanceOf(Error)
    expect(error.code).toBe(code)
    expect(error.message).toBe(message)
    expect(error.name).toBe(error.constructor.name)
    expect(error.resources[0]).toBe('a')
  })

  test.each<[LossReason, string]>([
    ['stolen', 'the engine says that it is no longer ours: somebody took it, or servers forgot it'],
    ['unreachable', 'it could not be renewed before its validity ended'],
    ['doubtful', 'a renewal failed, and it was not to be kept in doubt'],
    ['expired', 'its time is up'],
    ['max-hold', 'it was held for as long as it may be'],
    ['abandoned', 'it was garbage-collected without being released'],
    ['released', 'it was released'],
    ['closed', 'its locks were closed'],
  ])('a lease that is over because of %s says so', (reason, words) => {
    const error = new LeaseLostError(['a'], reason, cause)
    expect(error).toMatchObject({ name: 'LeaseLostError', code: 'LEASE_LOST', reason, cause })
    expect(error.message).toBe(`the lease on 'a' is over: ${words}`)
  })

  test('is exported by the package', () => {
    expect(api).toMatchObject({
      EngineError,
      ForeignTokenError,
      GuardError,
      HeldError,
      LeaseLostError,
      QuorumError,
      StaleTokenError,
      WaitTimeoutError,
    })
  })
})

describe('the error of an engine', () => {
  test('is worth a retry unless it says otherwise, and keeps its cause', () => {
    expect(new EngineError('x', ['a'], { cause })).toMatchObject({ transient: true, cause })
    const final = new EngineError('x', ['a'], { transient: false })
    expect(final.transient).toBe(false)
    expect('cause' in final).toBe(false)
  })

  test('of a quorum is one too, and tells of every node that failed', () => {
    const nodes = [
      { node: 'one', cause },
      { node: 'two', cause: new Error('no answer within 50 ms') },
    ]
    const error = new QuorumError(['a'], { quorum: 3, size: 5, nodes, transient: false })
    expect(error).toBeInstanceOf(EngineError)
    expect(error).toMatchObject({ quorum: 3, size: 5, nodes, cause, transient: false })
    expect(error.message).toContain('one: connection reset; two: no answer within 50 ms')
  })
})

test('every error is JSON, with its code, its fields, tokens as text and causes as their messages', () => {
  const cause = new Error('connect ECONNREFUSED')
  expect(json(new HeldError(['a'], 'me', 5))).toEqual({
    name: 'HeldError',
    code: 'HELD',
    message: expect.stringContaining("'a' is held by me"),
    resources: ['a'],
    holder: 'me',
    remainingMs: 5,
    offered: false,
  })
  expect(json(new StaleTokenError(['a'], 5n, 2n ** 63n))).toMatchObject({ token: '5', seen: '9223372036854775808' })
  expect(json(new EngineError('no answer', ['a'], { cause }))).toMatchObject({
    code: 'ENGINE',
    transient: true,
    cause: 'connect ECONNREFUSED',
  })
  const nodes = [{ node: 'n1:6379', cause }]
  expect(json(new QuorumError(['a'], { quorum: 2, size: 3, nodes }))).toMatchObject({
    code: 'QUORUM',
    nodes: [{ node: 'n1:6379', cause: 'connect ECONNREFUSED' }],
    quorum: 2,
    cause: 'connect ECONNREFUSED',
  })
})

test('whatever the cause has become, an error is JSON: test runners make plain objects of causes', () => {
  const told = Object.assign(Object.create(null) as object, { message: 'connect ECONNREFUSED' })
  expect(json(new EngineError('no answer', ['a'], { cause: told }))).toMatchObject({ cause: 'connect ECONNREFUSED' })
  for (const cause of [Object.create(null), { message: 5, toString: 5 }, Symbol('x'), undefined, null, 'text'])
    expect(json(new EngineError('no answer', ['a'], { cause }))).toMatchObject({ message: 'no answer' })
})

function json(error: RingfenceError): unknown {
  expect(error).toBeInstanceOf(RingfenceError)
  return (JSON.parse(JSON.stringify({ error })) as { error: unknown }).error
}
