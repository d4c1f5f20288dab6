import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { HeldError } from '../../src/errors.ts'
import { locksSettings } from '../../src/options.ts'
import { memory } from '../../src/engines/memory.ts'
import { isOurs, newOwner, ownerParts, whoIs } from '../../src/owner.ts'
import { systemRandom } from '../../src/random.ts'
import { bench, collect, neighbour } from './bench.ts'

describe('an owner', () => {
  test('has a label and a note that can be told apart, whatever is in them', () => {
    const text = fc.string({ unit: 'grapheme-ascii', minLength: 1 })
    const label = text.filter((label) => !label.includes(' ('))
    fc.assert(
      fc.property(label, fc.option(text, { nil: undefined }), (label, note) => {
        const owner = newOwner(systemRandom, label, note)
        expect(isOurs(owner)).toBe(true)
        // Without a note, a label that ends with a parenthesis is still a label.
        expect(ownerParts(owner)).toEqual({ label, note })
      }),
    )
  })

  test('of other software is all label', () => {
    expect(ownerParts('3f2a (what)')).toEqual({ label: '3f2a (what)', note: undefined })
    expect(ownerParts('someone@host (what)')).toEqual({ label: 'host (what)', note: undefined })
  })

  test('of other software is shown to its 200th character, and a terminal does not obey it', () => {
    expect(whoIs('x'.repeat(100_000))).toBe(`${'x'.repeat(200)}…`)
    expect(new HeldError(['a'], 'me\u001b[2J').message).toBe("'a' is held by me\\u001b[2J")
    const [label, note] = ['l'.repeat(200), 'n'.repeat(200)]
    expect(whoIs(newOwner(systemRandom, label, note))).toBe(`${label} (${note})`)
  })

  test('has no label in which a note could begin', () => {
    const said = /^label: expected a name without ' \(', which a note begins with, got 'host \(1\)'$/
    expect(() => locksSettings({ label: 'host (1)' }, memory())).toThrow(said)
    expect(locksSettings({ label: 'host(1)' }, memory()).label).toBe('host(1)')
  })
})

describe('a note', () => {
  test('of a call, or else of the locks, is on the lease, in inspect, and in what others are told', async () => {
    const it = bench({ note: 'nightly', label: 'host:1' })
    const { locks } = it
    const [one, two] = [await locks.acquire('a', { note: 'invoice 42' }), await locks.tryAcquire('b')]
    expect([one.note, two?.note]).toEqual(['invoice 42', 'nightly'])
    expect(one.owner).toMatch(/^[0-9a-f]{32}@host:1 \(invoice 42\)$/)
    const notes = (await collect(locks.inspect())).map(({ resource, note }) => [resource, note])
    expect(notes).toEqual([
      ['a', 'invoice 42'],
      ['b', 'nightly'],
    ])
    const refused = await neighbour(it)
      .acquire('a', { wait: 0 })
      .catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(HeldError)
    expect((refused as HeldError).message).toContain('held by host:1 (invoice 42), for ')
  })

  test('is taken by once and elect, and is handed over with nothing of the one before', async () => {
    const { clock, locks } = bench({ wait: '1h' })
    expect(await locks.once('a', { note: 'report' }, ({ note }) => note)).toEqual({ ran: true, value: 'report' })
    expect(await locks.elect('a', { note: 'leads' }, ({ note }) => note)).toBe('leads')
    const first = await locks.acquire('a', { note: 'first' })
    const waiting = locks.acquire('a')
    await clock.advance(10)
    await first.release()
    expect((await waiting).note).toBeUndefined()
  })
})
