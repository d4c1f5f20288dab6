import { describe, expect, test } from 'vitest'
import type { FindingRow, LineRow, WhyLine } from '../../src/dashboard/protocol.ts'
import { Board } from '../../src/dashboard/server/board.ts'
import { whyStuck, type WhyFacts } from '../../src/dashboard/server/why.ts'
import type { LeaseInfo } from '../../src/index.ts'
import { ManualClock } from '../../harness/manual-clock.ts'

const ADA = `${'a'.repeat(32)}@web-3:4711 (invoice 42)`

interface Stuck {
  clock: ManualClock
  board: Board
  look: (...leases: readonly Partial<LeaseInfo>[]) => void
  said: (facts?: Partial<WhyFacts>, resource?: string) => string[]
}

function stuck(): Stuck {
  const clock = new ManualClock()
  const board = new Board(clock)
  return {
    clock,
    board,
    look(...leases) {
      board.begin()
      for (const lease of leases) board.see({ resource: 'x', owner: ADA, token: 7n, remainingMs: 30_000, ...lease })
      board.finish()
    },
    said(facts = {}, resource = 'x') {
      const past = board.history(resource)
      const rows = board.of(resource)
      const nowMs = clock.monotonicMs()
      const lines = whyStuck({ ...past, rows, nodes: [], diagnosis: undefined, trouble: null, nowMs, ...facts })
      return lines.map(text)
    },
  }
}

function finding(severity: 'critical' | 'warning' | 'ok', found: string, nodes: string[]): FindingRow {
  return { id: 'x/y', severity, facts: [{ found, nodes }], meaning: 'It matters.' }
}

function text({ kind, said }: WhyLine): string {
  const parts = said.map((part) =>
    typeof part === 'string' ? part : 'name' in part ? `<${part.name}>` : `$ ${part.code}`,
  )
  return `${kind}: ${parts.join('')}`
}

describe('why a lease is stuck', () => {
  test('of what is only offered, it says to whom and for how long', () => {
    const { look, said } = stuck()
    look({ offered: true, token: 0n, remainingMs: 2000, waiters: 1 })
    expect(said()).toEqual([
      'fact: Nobody holds it now. It is offered to <web-3:4711>, the first in line, for 2 s more; then to the next.',
      'fact: One waits for it.',
      'next: It is not stuck: nobody holds it.',
    ])
  })

  test('a holder that renews is named, with what to do about its process', () => {
    const { clock, look, said } = stuck()
    look({ heldMs: 5000, waiters: 0 })
    clock.pass(10_000)
    look({ heldMs: 15_000, waiters: 0, remainingMs: 20_000 })
    look({ heldMs: 15_000, waiters: 0 })
    clock.pass(1000)
    expect(said()).toEqual([
      'fact: <web-3:4711> has held it for 16 s, with token 7. It says what for: <invoice 42>',
      'fact: It is renewed: once, the last time 1 s ago. So its process runs and reaches the servers.',
      'fact: Nobody waits for it.',
      'next: On web-3, see what it does: $ ps -o pid,stat,etime,args -p 4711',
      'next: If you can end that process, end it; it releases the lease: $ kill -TERM 4711',
      'next: Otherwise release the lease. The old holder learns of it with its next renewal and works on until then, so only a store that checks tokens is safe. $ ringfence release --force x',
      'next: docs/operating/stuck.md has these steps, and what the old holder does.',
    ])
  })

  test('one that renews no more, or was never seen to, ends by itself: there is nothing to do but to wait', () => {
    const { clock, look, said } = stuck()
    look({})
    clock.pass(10_000)
    expect(said()[1]).toBe(
      'fact: No renewal was seen yet, in 0 s of looking. Without a renewal it ends by itself in 20 s.',
    )
    look({ remainingMs: 20_000 })
    clock.pass(10_000)
    look({ remainingMs: 10_000 })
    expect(said()[1]).toMatch(
      /^warning: No renewal was seen in 20 s\. .* Without a renewal it ends by itself in 10 s\.$/,
    )
    look({ remainingMs: 30_000 })
    clock.pass(25_000)
    look({ remainingMs: 5000 })
    const lines = said()
    expect(lines[1]).toMatch(/^warning: It was renewed once, but not for 25 s, although its time is 30 s\. /)
    expect(lines.at(-2)).toBe('next: Wait: if nothing renews it, it ends by itself, and the next one gets it.')
    expect(lines.join()).not.toContain('release --force')
    clock.pass(6000)
    expect(said()[1]).toMatch(/By now it is over, or was renewed: the next look will tell\.$/)
  })

  test('where the engine gives the whole ttl at every look, nothing is inferred from it', () => {
    const { clock, board, look, said } = stuck()
    for (let count = 0; count < 3; count++) {
      look({})
      clock.pass(5000)
    }
    expect(board.history('x').lives).toMatchObject([{ renewed: 0 }])
    expect(said()[1]).toMatch(/^fact: This engine does not tell when it was renewed, nor when it ends/)
    expect(said().join()).toContain('$ ringfence release --force x')
  })

  test('what other software set has no end, and is to be released', () => {
    const { look, said } = stuck()
    look({ remainingMs: undefined, owner: 'something else', token: 0n })
    const lines = said()
    expect(lines[0]).toBe('fact: <something else> has held it for at least 0 s, with token 0.')
    expect(lines[1]).toMatch(/^warning: It has no end/)
    expect(lines[2]).toMatch(/^fact: Who waits is not known/)
    expect(lines.join()).toContain('$ ps -o pid,stat,etime,args -p PID')
  })

  test('a renewal that failed is told where locks of this process said so', () => {
    const { clock, board, look, said } = stuck()
    look({})
    const about = { resources: ['x'], owner: ADA, token: 7n }
    board.heard({ type: 'renewed', slackMs: 1, ttlMs: 30_000, ...about })
    clock.pass(5000)
    board.heard({ type: 'doubtful', cause: new Error('away'), remainingMs: 1, ...about })
    expect(said()[2]).toBe(
      'warning: A renewal failed once, the last time 0 s ago: its process could not reach the servers.',
    )
  })

  test('who waits, which servers are silent or sit out, and what the doctor says', () => {
    const { look, said } = stuck()
    look({ waiters: 2 })
    const line: LineRow[] = [{ owner: `${'b'.repeat(32)}@mail`, label: 'mail', waitedMs: 130_000 }]
    const known = { roundTripMs: null, clockOffsetMs: null }
    const nodes = [
      { node: 'a:1', error: 'connect ECONNREFUSED', ...known },
      { node: 'b:1', sitsOutMs: 61_000, sitsOutLater: true, ...known },
    ]
    const findings = [
      finding('critical', 'Only 1 may vote.', []),
      finding('warning', 'It is silent.', ['a:1']),
      finding('ok', 'Fine.', []),
    ]
    const lines = said({ line, nodes, diagnosis: { score: 0, findings }, trouble: 'no answer' })
    expect(lines[0]).toBe(
      'warning: The engine could not be looked through: no answer. What follows is of the last look that worked.',
    )
    expect(lines.slice(3, 7)).toEqual([
      'fact: 2 wait for it. The first in line is <mail>, for 2 min 10 s.',
      'warning: <a:1> does not answer: connect ECONNREFUSED.',
      'warning: <b:1> sits out for 1 min 1 s from the next attempt on: it restarted, and may have forgotten leases.',
      'warning: The doctor, critical: Only 1 may vote.',
    ])
    expect(lines.join()).not.toContain('It is silent.')
  })

  test('one that is free, or changes hands all the time, is not stuck', () => {
    const { clock, look, said } = stuck()
    expect(said()).toEqual([
      'fact: Nobody holds it, and nothing was seen of it.',
      'next: It is not stuck: nobody holds it.',
    ])
    look()
    for (let token = 1n; token < 6n; token++) {
      clock.pass(2000)
      look({ token })
    }
    expect(said().at(-1)).toMatch(
      /^next: It was granted 5 times in the last minute\. .*docs\/background\/bottleneck\.md/,
    )
    clock.pass(1000)
    look()
    clock.pass(4000)
    expect(said()[0]).toBe('fact: Nobody holds it now: the lease of <web-3:4711> was released 4 s ago.')
  })

  test('those who share it are each told, up to three', () => {
    const { look, said } = stuck()
    const readers = ['1', '2', '3', '4', '5'].map((digit) => ({ owner: `${digit.repeat(32)}@r${digit}`, shared: true }))
    look(...readers)
    const lines = said()
    expect(lines[0]).toMatch(/^fact: <r1> shares it for at least 0 s/)
    expect(lines).toContain('fact: 2 more share it.')
  })

  test.each([
    ['it’s', "'it’s'"],
    ["it's; rm -rf /", `'it'\\''s; rm -rf /'`],
    ['$(reboot)', "'$(reboot)'"],
  ])('the command for %s is safe to type', (resource, typed) => {
    const { look, clock, said } = stuck()
    look({ resource })
    clock.pass(10_000)
    look({ resource, remainingMs: 20_000 })
    look({ resource })
    expect(said({}, resource).join('\n')).toContain(`$ ringfence release --force ${typed}\n`)
  })

  test.each(['--yes', 'a\u202eb', 'a\nb'])('for %j there is none', (resource) => {
    const { look, clock, said } = stuck()
    look({ resource })
    clock.pass(10_000)
    look({ resource, remainingMs: 20_000 })
    look({ resource })
    expect(said({}, resource).join('\n')).not.toContain('ringfence release')
  })
})

describe('the life of a lease', () => {
  test('has its renewals: seen as an end that moved, or told by locks of this process, and never both', () => {
    const { clock, board, look } = stuck()
    look()
    look({ token: 1n })
    clock.pass(10_000)
    look({ token: 1n, remainingMs: 20_000 })
    look({ token: 1n, remainingMs: 30_000 })
    clock.pass(1000)
    expect(board.history('x').lives).toMatchObject([
      {
        began: 'granted',
        beganMs: 11_000,
        beganExact: false,
        endedMs: null,
        renewals: [1000],
        renewed: 1,
        renewalsExact: false,
      },
    ])
    board.heard({ type: 'renewed', slackMs: 1, ttlMs: 30_000, resources: ['x'], owner: ADA, token: 1n })
    clock.pass(1000)
    look({ token: 1n, remainingMs: 29_500 })
    expect(board.history('x').lives[0]).toMatchObject({ renewals: [2000, 1000], renewed: 2, renewalsExact: true })
    clock.pass(1000)
    look({ token: 2n })
    clock.pass(1000)
    expect(board.history('x').lives).toMatchObject([
      { token: '1', ended: 'handed over', endedMs: 1000, renewed: 2 },
      { token: '2', began: 'handed over', beganMs: 1000, endedMs: null, renewed: 0 },
    ])
    look()
    expect(board.history('x').lives[1]).toMatchObject({ ended: 'released', endedMs: 0, endedExact: false })
  })

  test('a look that was read late is no renewal', () => {
    const { clock, board, look } = stuck()
    look({ remainingMs: 30_000 })
    clock.pass(3000)
    look({ remainingMs: 27_000 })
    // The answer was made 2 s ago, and is read now.
    clock.pass(3000)
    look({ remainingMs: 26_000 })
    clock.pass(1000)
    look({ remainingMs: 23_000 })
    clock.pass(1000)
    look({ remainingMs: 22_000 })
    expect(board.history('x').lives).toMatchObject([{ renewed: 0 }])
    clock.pass(1000)
    look({ remainingMs: 30_000 })
    expect(board.history('x').lives).toMatchObject([{ renewed: 1 }])
  })

  test('a lease that no look saw is there if it was told, with its doubts; marks are bounded', () => {
    const { clock, board, look } = stuck()
    look()
    const about = { resources: ['x'], owner: ADA, token: 7n }
    const granted = { type: 'granted', waitedMs: 0, handedOver: false, shared: false, call: 1 } as const
    board.heard({ ...granted, ...about })
    for (let count = 0; count < 100; count++) {
      clock.pass(10)
      board.heard({ type: 'renewed', slackMs: 1, ttlMs: 30_000, ...about })
    }
    board.heard({ type: 'doubtful', cause: new Error('away'), remainingMs: 1, ...about })
    board.heard({ type: 'lost', reason: 'unreachable', heldMs: 1000, ...about })
    const [life] = board.history('x').lives
    expect(life).toMatchObject({ beganExact: true, ended: 'lost', endedExact: true, renewed: 100, doubts: [0] })
    expect(life!.renewals).toHaveLength(40)
  })

  test('what was held before anyone looked is seen, and not granted', () => {
    const { clock, board, look } = stuck()
    look({ heldMs: 60_000 })
    clock.pass(1000)
    expect(board.history('x').lives).toMatchObject([
      { began: 'seen', beganMs: 61_000, beganExact: true, endedMs: null },
    ])
  })
})
