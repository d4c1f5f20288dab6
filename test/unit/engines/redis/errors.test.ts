import { expect, test } from 'vitest'
import { silentNodes } from '../../../../src/engines/redis/errors.ts'

test('a node that is silent when the wait ends is named, with the time that it has and what its client says', () => {
  const nodes = [
    { label: 'a:1', unanswered: 1, client: { trouble: () => 'connect ECONNREFUSED' } },
    { label: 'b:2', unanswered: 2, client: {} },
    { label: 'c:3', unanswered: 0, client: {} },
  ]
  const failures = silentNodes(nodes as never, 999.6, 2000)
  expect(failures.map(({ node, cause }) => [node, cause.message])).toEqual([
    ['a:1', 'no answer yet after 1000 ms (connect ECONNREFUSED), when the wait ended; a node has up to 2 s'],
    ['b:2', 'no answer yet after 1000 ms, when the wait ended; a node has up to 2 s'],
  ])
})
