import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { isAvailable, program } from '../../harness/binaries.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

const run = promisify(execFile)
const MODEL = path.join(import.meta.dirname, '../../sim/explore/promela/election.pml')

/** What spin says of the model in every state, or of the first that breaks an assertion. */
async function search(flags: readonly string[]): Promise<{ errors: number; states: number; text: string }> {
  const folder = createFolder('promela')
  try {
    const spin = program('spin')
    await run(spin.path, ['-a', ...flags.map((flag) => `-D${flag}`), MODEL], {
      cwd: folder,
      env: { ...process.env, ...spin.env },
    })
    await run('cc', ['-O1', '-w', '-DSAFETY', '-DCOLLAPSE', '-DMEMLIM=1000', '-o', 'pan', 'pan.c'], { cwd: folder })
    const { stdout: text } = await run(path.join(folder, 'pan'), ['-m200000'], { cwd: folder })
    const [, errors] = /errors: (\d+)/.exec(text)!
    const [, states] = /(\d+) states, stored/.exec(text)!
    return { errors: Number(errors), states: Number(states), text }
  } finally {
    removeFolder(folder)
  }
}

// Spin makes a program in C of the model.
describe.runIf(isAvailable('spin') && isAvailable('clock-shift'))('the protocol in Promela, checked by spin', () => {
  test('holds where no node forgets', { timeout: 300_000 }, async () => {
    const { errors, states, text } = await search(['NO_CRASH'])
    expect({ errors, text }).toMatchObject({ errors: 0 })
    expect(text).not.toContain('max search depth too small')
    expect(states).toBeGreaterThan(400_000)
  })

  test.each([
    ['takes the highest of the numbers that were granted', ['ONE_PHASE', 'NO_CRASH', 'CLOCKS_MAD']],
    ['confirms a number that its counter is above', ['CONFIRM_BELOW', 'NO_CRASH', 'CLOCKS_MAD']],
    ['promises exclusion whatever the clocks do', ['EXCLUSION', 'NO_CRASH', 'CLOCKS_MAD']],
    ['has a node vote at once after it forgot', ['NO_SIT_OUT']],
    ['has a node sit out, but number from nothing', ['NUMBERS_FROM_NOTHING']],
  ])('is broken where it %s', { timeout: 300_000 }, async (_name, flags) => {
    const { errors, text } = await search(flags)
    expect(errors).toBe(1)
    expect(text).toContain('assertion violated')
  })
})
