import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { thisMachine } from '../../../../src/engines/file/machine.ts'
import { until } from '../../../../harness/until.ts'

describe('a process', () => {
  const machine = thisMachine()
  const [pid, started, ...place] = machine.self!.split(' ')

  test('lives while it runs', () => {
    expect(machine.isGone(machine.self!)).toBe(false)
  })

  test('is gone when there is none of its number', async () => {
    const child = spawn('true')
    await once(child, 'exit')
    expect(machine.isGone([child.pid, started, ...place].join(' '))).toBe(true)
  })

  test('is gone when another one, that started later, has its number', () => {
    expect(machine.isGone([pid, Number(started) - 1, ...place].join(' '))).toBe(true)
  })

  test('is stopped while it is, and lives', async () => {
    const child = spawn('sleep', ['60'])
    const [startedThen] = /(?<=\) (?:\S+ ){19})\d+/.exec(readFileSync(`/proc/${child.pid}/stat`, 'latin1'))!
    const id = [child.pid, startedThen, ...place].join(' ')
    try {
      expect(machine.isStopped(id)).toBe(false)
      // Not by `child.kill`, which does so once on Deno.
      process.kill(child.pid!, 'SIGSTOP')
      await until(() => machine.isStopped(id), { what: 'a stop' })
      expect(machine.isGone(id)).toBe(false)
      process.kill(child.pid!, 'SIGCONT')
      await until(() => !machine.isStopped(id), { what: 'its end' })
    } finally {
      process.kill(child.pid!, 'SIGKILL')
    }
  })

  test('of another boot or another namespace is never said to be gone', () => {
    for (const index of place.keys()) {
      const elsewhere = place.with(index, 'elsewhere')
      expect(machine.isGone([4_194_305, started, ...elsewhere].join(' '))).toBe(false)
    }
    expect(place).toHaveLength(3)
    expect(machine.isGone([4_194_305, started, ...place].join(' '))).toBe(true)
  })
})
