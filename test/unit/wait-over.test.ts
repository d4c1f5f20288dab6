import { describe, expect, test } from 'vitest'
import type { LeaseRequest } from '../../src/engine.ts'
import { EngineError } from '../../src/errors.ts'
import { Gate } from '../../harness/scripted-engine.ts'
import { bench, neighbour, watched, type Bench } from './bench.ts'

/** The engine does not answer until the gate is opened. */
function silence({ engine }: Bench): Gate {
  const gate = new Gate()
  engine.next.acquire.push(async (_request, pass) => {
    await gate.opened
    return pass()
  })
  return gate
}

const UNANSWERED = {
  state: 'rejected',
  reason: {
    code: 'ENGINE',
    transient: true,
    resources: ['a'],
    message: 'scripted: no answer within the wait of 2 s; a request may take longer than that',
  },
}

describe('a wait in which the engine has not said a word', () => {
  test('ends with an error of the engine: nobody knows that the resource is busy', async () => {
    const it = bench({ wait: '2s' })
    const gate = silence(it)
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(2000)
    expect(waiting).toMatchObject(UNANSWERED)
    expect(it.events.at(-1)).toMatchObject({ type: 'denied', reason: 'failed', cause: { code: 'ENGINE' } })
    gate.open()
  })

  test('ends so for everyone in line', async () => {
    const it = bench({ wait: '2s' })
    const gate = silence(it)
    const waiting = Array.from({ length: 5 }, () => watched(it.locks.acquire('a')))
    await it.clock.advance(500)
    const late = watched(it.locks.acquire('a', { wait: 1500 }))
    await it.clock.advance(1500)
    for (const wait of waiting) expect(wait).toMatchObject(UNANSWERED)
    expect(late).toMatchObject({ state: 'rejected', reason: { code: 'ENGINE' } })
    gate.open()
  })
})

describe('a wait in which the engine has answered', () => {
  test('ends as busy, also when the last question of all was not answered', async () => {
    const it = bench({ wait: '3s' })
    const rival = await neighbour(it).acquire('a', { ttl: '1s', renew: false })
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(500)
    const gate = silence(it)
    await it.clock.advance(2500)
    expect(waiting).toMatchObject({ state: 'rejected', reason: { code: 'WAIT_TIMEOUT', holder: rival.owner } })
    gate.open()
  })

  test('ends as busy for one who has just come to the front, with the holder that the one before had found', async () => {
    const it = bench()
    const rival = await neighbour(it).acquire('a', { ttl: '1h' })
    const [first, second] = [1000, 1001].map((wait) => watched(it.locks.acquire('a', { wait })))
    await it.clock.advance(999)
    const gate = silence(it)
    await it.clock.advance(2)
    expect(it.engine.count('acquire')).toBe(3)
    for (const wait of [first, second]) {
      expect(wait).toMatchObject({ state: 'rejected', reason: { code: 'WAIT_TIMEOUT', holder: rival.owner } })
    }
    gate.open()
  })

  test('ends with an error of the engine if that was before it began, and silence since', async () => {
    const armed = new Gate()
    const it = bench({ wait: '2s' }, { armed: () => armed.opened.then(() => false) })
    await neighbour(it).acquire('a', { ttl: '1h' })
    const first = watched(it.locks.acquire('a', { wait: 1000 }))
    await it.clock.advance(1000)
    expect(first).toMatchObject({ state: 'rejected', reason: { code: 'WAIT_TIMEOUT' } })
    // It has given up, but is in line until it has heard whether it would have been woken.
    await it.clock.advance(1)
    const gate = silence(it)
    const second = watched(it.locks.acquire('a'))
    armed.open()
    await it.clock.advance(2000)
    gate.open()
    expect(second).toMatchObject(UNANSWERED)
  })

  test('ends as busy while votes are split again and again', async () => {
    const it = bench({ wait: 20 })
    it.engine.next.acquire.push(
      ...Array.from({ length: 1000 }, () => async () => {
        await new Promise<void>((resolve) => void it.clock.timer(resolve, 5))
        return { kind: 'refused', reason: 'split', retryWithinMs: 5 } as const
      }),
    )
    const waiting = watched(it.locks.acquire('a'))
    await it.clock.advance(20)
    expect(waiting).toMatchObject({ state: 'rejected', reason: { code: 'WAIT_TIMEOUT' } })
    await it.clock.advance(1000)
  })
})

describe("a wait in the servers' own queue", () => {
  test('ends with their failure while they do not answer, and as busy when they do again', async () => {
    const asked: LeaseRequest[] = []
    const enqueue = (request: LeaseRequest, signal: AbortSignal): Promise<never> => {
      asked.push(request)
      return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    const it = bench({ wait: '2s' }, { enqueue })
    const rival = await neighbour(it).acquire('a', { ttl: '1h' })
    const waiting = [it.locks.tryAcquire('a', { wait: 1000 }), it.locks.acquire('a', { wait: 1000 })].map(watched)
    const last = watched(it.locks.acquire('a'))
    await it.clock.advance(500)
    const failure = new EngineError('connect ECONNREFUSED', ['a'])
    asked[0]!.failing!(failure)
    await it.clock.advance(500)
    // Also who is in line behind it.
    for (const wait of waiting) expect(wait).toMatchObject({ state: 'rejected', reason: failure })
    expect(it.events.filter(({ type }) => type === 'denied')).toMatchObject([{ cause: failure }, { cause: failure }])
    expect(asked).toHaveLength(2)
    asked[1]!.failing!(failure)
    asked[1]!.failing!(undefined)
    await it.clock.advance(1000)
    expect(last).toMatchObject({ state: 'rejected', reason: { code: 'WAIT_TIMEOUT', holder: rival.owner } })
  })
})

test('a wait inside of the work that holds the same resource says so', async () => {
  const it = bench({ ttl: '10s' })
  const lease = await it.locks.acquire('a')
  const [first, second] = ['1s', '1s'].map(() => watched(it.locks.acquire('a', { wait: '1s' })))
  await it.clock.advance(1000)
  for (const wait of [first!, second!]) {
    expect(wait).toMatchObject({
      state: 'rejected',
      reason: {
        code: 'WAIT_TIMEOUT',
        holder: lease.owner,
        message:
          "waited 1 s for 'a', held by this very process for 1.0 s. A lease is not re-entrant: is this call inside of the " +
          'one that holds it?',
      },
    })
  }
})
