import { readFileSync } from 'node:fs'
import { afterAll, expect, test } from 'vitest'
import { Home } from '../../support/command.ts'

const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

const CROWD = 50

// Fifty starts of Node on two cores take some ten seconds, on a busy machine several times that.
test(
  'of 50 processes that start at once exactly one runs at a time, each once, with growing tokens',
  { timeout: 180_000 },
  async () => {
    // A folder can be made once: the second of two at a time would fail to.
    const section = 'mkdir inside || exit 9; echo "$RINGFENCE_TOKEN" >>log; sleep 0.01; rmdir inside'
    const crowd = Array.from({ length: CROWD }, () => home.run(['run', 'crowd', '--', 'sh', '-c', section]))
    expect((await Promise.all(crowd)).map(({ code, stderr }) => ({ code, stderr }))).toEqual(
      Array.from({ length: CROWD }, () => ({ code: 0, stderr: '' })),
    )
    const tokens = readFileSync(home.file('log'), 'utf8').trim().split('\n').map(BigInt)
    expect(tokens).toHaveLength(CROWD)
    expect([...tokens].sort((some, other) => (some < other ? -1 : 1))).toEqual(tokens)
    expect(new Set(tokens).size).toBe(CROWD)
  },
)
