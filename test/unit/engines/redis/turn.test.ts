import { expect, test } from 'vitest'
import { piece } from '../../../../src/engines/redis/pieces.ts'
import { Request } from '../../../../src/engines/redis/request.ts'
import { ACQUIRE, epochScript } from '../../../../src/engines/redis/scripts.ts'
import type { Step } from '../../../../src/engines/redis/steps.ts'
import { calls, Turn } from '../../../../src/engines/redis/turn.ts'
import { settled } from '../../../../harness/manual-clock.ts'

const nobody = { answered: (): void => undefined, failed: (): void => undefined }

function request(some: Partial<Step<unknown>> = {}, keys = 2): Request {
  const words = Array.from({ length: keys }, (_, index) => `k${index}`)
  const step: Step<unknown> = { script: ACQUIRE, keys: piece(...words), args: piece(), letter: 'a', read: String }
  return new Request({ ...step, ...some }, nobody, 0, undefined)
}

function sizes(requests: readonly Request[]): number[] {
  return [...calls(requests)].map(({ length }) => length)
}

test('a call has at most 64 steps and 128 keys', () => {
  expect(sizes(Array.from({ length: 130 }, () => request()))).toEqual([64, 64, 2])
  expect(sizes([request({}, 100), request({}, 28), request({}, 2)])).toEqual([2, 1])
  // A lease on many resources has a call of its own, however many they are.
  expect(sizes([request(), request({}, 200), request()])).toEqual([1, 1, 1])
})

test('a step that has a call of its own keeps its place among the others', () => {
  const { letter: _, ...alone } = request().step
  const own = new Request(alone, nobody, 0, undefined)
  const [before, after] = [request(), request()]
  expect([...calls([before, before, own, after])]).toEqual([[before, before], [own], [after]])
})

test('votes by different epochs never share a call', () => {
  const voting = (epoch: string): Request => {
    const vote = request({ vote: { ttlMs: 1 } })
    vote.script = epochScript(epoch)
    return vote
  }
  expect(sizes([voting('one'), request(), voting('one'), voting('two'), request()])).toEqual([3, 2])
})

test('what is asked in one turn, also by promises that are settled in it, goes out together', async () => {
  const sent: number[] = []
  const turn = new Turn(false, (requests) => void sent.push(requests.length))
  turn.add(request())
  await Promise.resolve()
  turn.add(request())
  expect(sent).toEqual([])
  await settled()
  turn.add(request())
  await settled()
  expect(sent).toEqual([2, 1])
})

test('on a Cluster steps go together by slot, in their order', async () => {
  const sent: string[][] = []
  const turn = new Turn(true, (requests) => void sent.push(requests.map(({ step }) => step.keys.words[0]!)))
  for (const key of ['{a}1', '{b}1', '{a}2', '{b}2', '{a}3']) turn.add(request({ keys: piece(key, `f:${key}`) }))
  await settled()
  expect(sent).toEqual([
    ['{a}1', '{a}2', '{a}3'],
    ['{b}1', '{b}2'],
  ])
})
