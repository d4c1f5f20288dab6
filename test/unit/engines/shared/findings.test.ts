import { expect, test } from 'vitest'
import { findings, sentence } from '../../../../src/engines/shared/findings.ts'

test('a finding has the id of its engine, and names its server where there is one', () => {
  expect(findings('etcd').note('version', 'It is old.', 'It may fail.', 'Upgrade it.')).toEqual({
    id: 'etcd/version',
    severity: 'note',
    found: 'It is old.',
    meaning: 'It may fail.',
    remedy: 'Upgrade it.',
  })
  expect(findings('etcd', 'a:1').ok('version', 'It is new.', 'All is well.')).toEqual({
    id: 'etcd/version',
    severity: 'ok',
    node: 'a:1',
    found: 'It is new.',
    meaning: 'All is well.',
  })
})

test('a server that does not answer is critical unless others can stand in for it', () => {
  const { unreachable } = findings('etcd')
  expect(unreachable(new Error('connect ECONNREFUSED'), 'Start it.')).toMatchObject({
    severity: 'critical',
    found: 'The server does not answer: connect ECONNREFUSED.',
  })
  expect(unreachable('silence', 'Start it.', 'The others are asked.')).toMatchObject({
    severity: 'warning',
    meaning: 'The others are asked.',
  })
})

test('a sentence ends with one full stop', () => {
  expect(['It failed', 'It failed.', 'It failed!\n'].map(sentence)).toEqual(['It failed.', 'It failed.', 'It failed!'])
})
