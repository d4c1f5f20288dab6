import { expect, test } from 'vitest'
import { adviceFor, QUESTIONS, type Answers } from '../../../../src/cli/commands/advice.ts'

const answers: Answers = {
  protects: 'several-stores',
  failure: 'waste',
  checks: 'no',
  machines: 'many',
  have: 'redis',
  available: 'no',
}

test.each([
  ['all data in one database, and damage', { protects: 'one-database', failure: 'damage' }, 'none'],
  ['one machine', { machines: 'one' }, 'file'],
  ['several machines, best effort', {}, 'redis'],
  ['several machines, best effort, always available', { available: 'yes' }, 'redlock'],
  ['damage, with Redis alone', { failure: 'damage' }, 'redlock'],
  ['damage, with nothing yet', { failure: 'damage', have: 'nothing', available: 'yes' }, 'etcd'],
  ['damage, with ZooKeeper there', { failure: 'damage', have: 'zookeeper' }, 'zookeeper'],
  ['best effort, with nothing yet', { have: 'nothing' }, 'redis'],
  ['best effort, with nothing yet, always available', { have: 'nothing', available: 'yes' }, 'etcd'],
  ['PostgreSQL there', { have: 'postgres' }, 'postgres'],
] as const)('%s: %o gives %s', (_case, given, engine) => {
  expect(adviceFor({ ...answers, ...given }).engine).toBe(engine)
})

test('where damage is possible, the advice is to check tokens, or says that no lock will do', () => {
  const damage = { ...answers, failure: 'damage' } as const
  expect(adviceFor({ ...damage, checks: 'yes' }).reasons.join()).toContain('Check the token at the store')
  expect(adviceFor({ ...damage, checks: 'yes' }).snippet.join()).toContain('token: lease.token')
  expect(adviceFor({ ...damage, checks: 'no' }).reasons.join()).toContain('no lock makes this safe')
})

test('the snippets for a job keep it from running twice when clocks are a second apart, in the shell too', () => {
  const { snippet } = adviceFor({ ...answers, protects: 'a-job' })
  expect(snippet[0]).toContain('run --once --at-least 50s job')
  expect(snippet.join('\n')).toContain("{ atLeast: '50s' }")
})

test('nobody is sent to the etcd of a Kubernetes control plane, and no token grows whatever happens', () => {
  expect(adviceFor({ ...answers, have: 'etcd' }).reasons.join()).toContain('Keep locks out of the etcd of a Kubernetes')
  expect(adviceFor({ ...answers, have: 'nothing', available: 'yes' }).reasons.join()).toContain('Keep locks out of')
  expect(adviceFor({ ...answers, failure: 'damage' }).reasons.join()).toContain('rests on the clocks')
  expect(adviceFor({ ...answers, machines: 'one' }).reasons.join()).toContain('needs the package libsql')
})

test('every combination of answers gives a recommendation with a reason and a snippet', () => {
  const all = QUESTIONS.reduce<Record<string, string>[]>(
    (some, { name, choices }) => some.flatMap((given) => choices.map(([choice]) => ({ ...given, [name]: choice }))),
    [{}],
  )
  expect(all.length).toBeGreaterThan(300)
  for (const given of all) {
    const { recommendation, reasons, snippet } = adviceFor(given as unknown as Answers)
    expect(recommendation).toMatch(/^(Use|You need no)/)
    expect(reasons.length).toBeGreaterThan(0)
    expect(snippet.join('\n')).toMatch(/\S/)
    expect(`${recommendation}${snippet.join()}`).not.toContain('undefined')
  }
})
