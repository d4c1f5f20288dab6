import { expect, test } from 'vitest'
import { countsOf, grouped, scoreOf, statesOf } from '../../src/diagnosis.ts'
import type { Finding } from '../../src/engine.ts'

function finding(severity: Finding['severity'], more: Partial<Finding> = {}): Finding {
  return { id: 'x', severity, found: 'F.', meaning: 'M.', ...more }
}

function score(...findings: Finding[]): number {
  return scoreOf(grouped(findings))
}

test('servers with the same fact are one finding, and those with another fact of the same meaning stand beside it', () => {
  const groups = grouped([
    finding('ok', { node: 'a' }),
    finding('note', { node: 'a', remedy: 'R.' }),
    finding('note', { node: 'b', remedy: 'R.', found: 'G.' }),
    finding('note', { node: 'c', remedy: 'R.' }),
    finding('note', { node: 'd', remedy: 'Another.' }),
    finding('critical'),
  ])
  expect(groups).toEqual([
    { id: 'x', severity: 'critical', facts: [{ found: 'F.', nodes: [] }], meaning: 'M.' },
    {
      id: 'x',
      severity: 'note',
      facts: [
        { found: 'F.', nodes: ['a', 'c'] },
        { found: 'G.', nodes: ['b'] },
      ],
      meaning: 'M.',
      remedy: 'R.',
    },
    { id: 'x', severity: 'note', facts: [{ found: 'F.', nodes: ['d'] }], meaning: 'M.', remedy: 'Another.' },
    { id: 'x', severity: 'ok', facts: [{ found: 'F.', nodes: ['a'] }], meaning: 'M.' },
  ])
  expect(countsOf(groups)).toBe('1 critical, 2 notes, 1 ok')
})

test('the score is 0 with anything critical, and above 0 without', () => {
  const nodes = ['a', 'b', 'c', 'd', 'e']
  expect(score(finding('ok'))).toBe(100)
  expect(score(finding('critical'), finding('ok'))).toBe(0)
  expect(score()).toBe(0)
  expect(score(...nodes.map((node) => finding('warning', { node })))).toBe(90)
  expect(score(finding('warning'), finding('note'))).toBe(89)
  expect(score(...Array.from({ length: 12 }, (_, index) => finding('warning', { id: String(index) })))).toBe(1)
})

function states(more: object): string {
  return statesOf([{ node: 'a', roundTripMs: 1, clockOffsetMs: 2, ...more }])
}

test('the states of servers differ when one goes away, comes, or begins to sit out, and not by the time that it takes', () => {
  expect(states({ roundTripMs: 7, clockOffsetMs: undefined })).toBe(states({}))
  expect(states({ sitsOutMs: 5000 })).toBe(states({ sitsOutMs: 4000 }))
  expect(new Set([states({}), states({ error: 'away' }), states({ sitsOutMs: 1 }), states({ node: 'b' })]).size).toBe(4)
})
