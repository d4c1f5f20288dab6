import { expect, test } from 'vitest'
import { ManualClock, settled } from '../../../../harness/manual-clock.ts'
import { Deadlines } from '../../../../src/deadlines.ts'
import { OpenRequests, QuorumCleanup } from '../../../../src/engines/redis/cleanup.ts'
import { Elections } from '../../../../src/engines/redis/elections.ts'
import { failureOf } from '../../../../src/engines/redis/errors.ts'
import { keySet } from '../../../../src/engines/redis/keys.ts'
import type { RedisNode } from '../../../../src/engines/redis/node.ts'
import type { StepListener } from '../../../../src/engines/redis/request.ts'
import type { NodeGrant, NodeRefusal } from '../../../../src/engines/redis/steps.ts'
import { watched } from '../../bench.ts'

const REQUEST = { resources: ['a'], owner: 'me', ttlMs: 10_000, shared: false }
const HELD: NodeRefusal = {
  kind: 'refused',
  fence: 5,
  holder: 'rival',
  offered: false,
  shared: false,
  remainingMs: 500,
}

/** An acquire on three nodes that answer when they are told to. */
function acquiring() {
  const clock = new ManualClock()
  const deadlines = new Deadlines(clock)
  const released: [number, string][] = []
  let election!: StepListener<NodeGrant | NodeRefusal>
  const nodes = [0, 1, 2].map((index) => ({
    label: `n${index}`,
    unanswered: 0,
    acquireStep: () => ({}),
    send: (_step: unknown, to: typeof election) => void (election = to),
    release: (_keys: unknown, owner: string) => {
      released.push([index, owner])
      return Promise.resolve({ ours: true, listeners: 0 })
    },
  })) as unknown as readonly RedisNode[]
  const elections = new Elections({
    nodes,
    clock,
    deadlines,
    open: new OpenRequests(deadlines),
    cleanup: new QuorumCleanup(nodes, deadlines, 100),
    electorate: undefined,
    identities: undefined,
    timeoutMs: () => 100,
    isObserved: () => false,
    failure: (failures, resources) => failureOf(failures, resources, { quorum: 2, size: 3 }),
  })
  const outcome = watched(
    new Promise((resolve, reject) => elections.acquire(keySet('', ['a']), REQUEST, resolve, reject)),
  )
  return {
    outcome,
    released,
    answer: (index: number, answer: NodeGrant | NodeRefusal) => election.answered(index, answer),
  }
}

test('a grant in the same moment as the refusal that decides it is given back', async () => {
  const it = acquiring()
  it.answer(0, HELD)
  // Both are read from their connections in one turn.
  it.answer(1, HELD)
  it.answer(2, { kind: 'granted', fence: 6 })
  await settled()
  expect(it.outcome).toMatchObject({ state: 'resolved', value: { kind: 'refused', reason: 'held', holder: 'rival' } })
  expect(it.released).toEqual([[2, 'me']])
})
