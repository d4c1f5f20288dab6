import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { remainingByFile } from '../../../../src/cli/child/deadline-file.ts'
import { sharedNow } from '../../../../src/cli/child/shared-clock.ts'
import { Watchdog } from '../../../../src/cli/child/watchdog.ts'
import { isGone } from '../../../../harness/process-tree.ts'
import { createFolder, removeFolder } from '../../../../harness/temporary-folder.ts'
import { until } from '../../../../harness/until.ts'

test('where there is no clock of the machine, the watchdog goes by the wall clock', async () => {
  const folder = createFolder('watchdog')
  const child = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' })
  const now = Date.now()
  const untilMs = now + 2500
  writeFileSync(`${folder}/deadline`, `unix ${untilMs} ${now + 1000} ${now + 2000} ${untilMs}\n`)
  const failures: Error[] = []
  const watchdog = new Watchdog(
    { deadlineFile: `${folder}/deadline`, group: child.pid!, job: undefined, owner: 'nobody' },
    (error) => failures.push(error),
  )
  await until(() => isGone(child.pid!), { what: 'the child is dead' })
  expect(Date.now()).toBeLessThan(untilMs)
  expect(failures).toEqual([])
  watchdog.stop()
  removeFolder(folder)
})

test('a deadline file is over when its time is over on either clock, and when it is gone', () => {
  const folder = createFolder('deadline')
  const path = `${folder}/deadline`
  const { clock, ms } = sharedNow()
  const write = (until: number, untilUnix: number): void => writeFileSync(path, `${clock} ${until} 0 0 ${untilUnix}\n`)
  write(ms + 5000, Date.now() + 3000)
  expect(remainingByFile(path)).toBeGreaterThan(2500)
  expect(remainingByFile(path)).toBeLessThanOrEqual(3000)
  write(ms - 1, Date.now() + 3000)
  expect(remainingByFile(path)).toBe(0)
  write(ms + 5000, Date.now() - 1)
  expect(remainingByFile(path)).toBe(0)
  writeFileSync(path, 'nonsense\n')
  expect(remainingByFile(path)).toBe(0)
  expect(remainingByFile(`${path}.gone`)).toBe(0)
  removeFolder(folder)
})
