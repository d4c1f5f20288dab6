import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { bootClock } from '../../../../src/engines/file/boot-clock.ts'

test('the clock of the machine is the same in a process of Node', () => {
  const clock = bootClock()
  const beforeMs = clock.machineMs()
  const read = 'process.stdout.write(String(Number(process.hrtime.bigint()) / 1e6))'
  const thereMs = Number(execFileSync('node', ['-e', read], { encoding: 'utf8' }))
  expect(thereMs).toBeGreaterThan(beforeMs)
  expect(thereMs).toBeLessThan(clock.machineMs())
})
