import { describe, expect, test } from 'vitest'
import { check } from '../../sim/checkers/all.ts'
import type { EventOf, HistoryEvent, Verdict } from '../../sim/history.ts'
import { ServerError } from '../../sim/redis.ts'
import { access, ends, fault, history, historyOf, lease, reader, verdictOf } from './histories.ts'

const late = (at: number): HistoryEvent[] => [
  ...lease('p0', 'x', 1, 100, 1100),
  { at, kind: 'signal', process: 'p0', owner: 'x', token: 1 },
  ends('p0', 'x', at, 'expired'),
]

const pause = (at: number, untilMs: number): HistoryEvent => ({ at, kind: 'pause', process: 'p0', untilMs })

const turn = (outcome: string, tookMs: number): HistoryEvent[] => [
  {
    at: 8000,
    kind: 'call',
    process: 'p0',
    call: 2,
    resources: ['a'],
    waitMs: 500,
    turn: 'second',
    isBounded: false,
  },
  { at: 8000 + tookMs, kind: 'return', process: 'p0', call: 2, outcome },
]

const dropped = (at: number): HistoryEvent => ({
  at,
  kind: 'dropped',
  id: 7,
  what: 'release',
  owner: 'o7',
  former: '',
  process: 'p0',
  node: 'n0',
})

const recorded = (at: number, outcome: EventOf<'run'>['outcome'], owner = 'x'): HistoryEvent => ({
  at,
  kind: 'run',
  process: 'p0',
  owner,
  resource: 'a',
  outcome,
})

describe('exclusion', () => {
  const both = [
    ...lease('p0', 'x', 1, 100, 1100),
    ends('p0', 'x', 500),
    ...lease('p1', 'y', 2, 400, 1400),
    ends('p1', 'y', 600),
  ]

  test('is false when two hold it at once', () => {
    expect(verdictOf('exclusion', history(...both))).toMatchObject({ verdict: 'false', owners: ['x', 'y'], at: 400 })
  })

  test('is true of readers side by side, and false of a writer beside any of them', () => {
    const readers = [...reader('p0', 'x', 1, 100, 1100), ...reader('p1', 'y', 1, 200, 500)]
    expect(verdictOf('exclusion', history(...readers))).toMatchObject({ verdict: 'true' })
    const after = history(...readers, ...lease('p2', 'z', 2, 800, 1800))
    expect(verdictOf('exclusion', after)).toMatchObject({ verdict: 'false', owners: ['x', 'z'], at: 800 })
    const before = history(...lease('p2', 'z', 1, 10, 150), ...reader('p0', 'x', 2, 100, 1100))
    expect(verdictOf('exclusion', before)).toMatchObject({ verdict: 'false', owners: ['z', 'x'], at: 100 })
  })

  test('is true when one follows the other, also without a release', () => {
    expect(
      verdictOf('exclusion', history(...lease('p0', 'x', 1, 100, 399), ...lease('p1', 'y', 2, 400, 1400))),
    ).toMatchObject({ verdict: 'true' })
  })

  test.each([
    ['jump', {}, 500],
    ['flushall', {}, 0],
    ['evict', { key: 'a' }, 0],
    ['failover', {}, 0],
    ['drift', { rate: 1.2 }, 0],
  ])('is unknown after %s, and false when that came later', (name, details, ms) => {
    expect(verdictOf('exclusion', history(...both, fault(150, name, details, ms)))).toMatchObject({
      verdict: 'unknown',
    })
    expect(verdictOf('exclusion', history(...both, fault(450, name, details, ms)))).toMatchObject({ verdict: 'false' })
  })

  test.each([
    ['flushall', {}],
    ['evict', { key: 'a' }],
    ['failover', {}],
    ['restore', { copyMs: 6000 }],
  ])('is not excused by %s before both of them began, nor if another two overlap that did', (name, details) => {
    expect(verdictOf('exclusion', history(...both, fault(50, name, details)))).toMatchObject({ verdict: 'false' })
    const others = [...lease('p0', 'v', 3, 2000, 3000), ...lease('p1', 'w', 4, 2500, 3500)]
    const made = history(...both, fault(150, name, details), ...others)
    expect(verdictOf('exclusion', made)).toMatchObject({ verdict: 'false', owners: ['v', 'w'] })
  })

  test('is not excused by a counter that is lost', () => {
    const lost = fault(150, 'evict', { key: 'ringfence:fence:{a}' })
    expect(verdictOf('exclusion', history(...both, lost))).toMatchObject({ verdict: 'false' })
  })

  test('is not excused by a clock that is set back, a pause, or a node that forgets and sits out', () => {
    for (const excuse of [fault(50, 'jump', {}, -500), fault(50, 'pause'), fault(50, 'crash', { memory: 'none' })]) {
      expect(verdictOf('exclusion', history(...both, excuse))).toMatchObject({ verdict: 'false' })
    }
  })

  test.each([
    ['replace', {}],
    ['restore', { copyMs: 9000 }],
  ])('is not excused by %s: such a node sits out', (name, details) => {
    expect(verdictOf('exclusion', history(...both, fault(50, name, details)))).toMatchObject({ verdict: 'false' })
  })

  test('is unknown after a copy that is younger than a node sits out, or with clients that are unlike', () => {
    const copy = fault(150, 'restore', { copyMs: 6000 })
    expect(verdictOf('exclusion', history(...both, copy))).toMatchObject({ verdict: 'unknown' })
    const made = historyOf({ unlike: 'p0 had another list of nodes than the others' }, ...both)
    expect(verdictOf('exclusion', made)).toMatchObject({ verdict: 'unknown' })
  })

  describe('when no node has a trace of use', () => {
    const message = { process: 'p1', node: 'n1', owner: 'z', former: '', what: 'acquire', id: 3 }
    const starts: HistoryEvent = { at: 0, kind: 'start', process: 'p1' }
    const blank: HistoryEvent = { at: 60, kind: 'blank' }
    const hears: HistoryEvent[] = [
      { at: 40, kind: 'exec', reply: ['77'], late: false, kept: 0, ...message },
      { at: 50, kind: 'heard', ...message },
    ]

    test('is unknown where a process looks that does not know either', () => {
      expect(verdictOf('exclusion', history(...both, starts, blank))).toMatchObject({ verdict: 'unknown' })
    })

    test('is false where all have had a vote before, where a trace came before the process, and with strict', () => {
      expect(verdictOf('exclusion', history(...both, starts, ...hears, blank))).toMatchObject({ verdict: 'false' })
      const again: HistoryEvent = { at: 65, kind: 'stamped' }
      const late: HistoryEvent = { at: 70, kind: 'start', process: 'p1' }
      expect(verdictOf('exclusion', history(...both, blank, again, late))).toMatchObject({ verdict: 'false' })
      const strict = historyOf({ restart: 'strict' }, ...both, starts, blank)
      expect(verdictOf('exclusion', strict)).toMatchObject({ verdict: 'false' })
    })
  })

  test('is unknown when nobody got a lease', () => {
    expect(verdictOf('exclusion', history())).toMatchObject({ verdict: 'unknown' })
  })
})

describe('tokens', () => {
  const first = [...lease('p0', 'x', 7, 100, 200), ends('p0', 'x', 150)]

  test('are those of readers, which may be the same, and are never that of a writer', () => {
    const readers = [...reader('p0', 'x', 2, 100, 1100), ...reader('p1', 'y', 2, 200, 1200)]
    expect(verdictOf('tokens', history(...readers))).toMatchObject({ verdict: 'true' })
    for (const began of [50, 1400]) {
      const writer = lease('p2', 'z', 2, 1500, 1800, began)
      expect(verdictOf('tokens', history(...readers, ...writer))).toMatchObject({ verdict: 'false' })
    }
    const lower = reader('p2', 'z', 1, 1500, 1800)
    expect(verdictOf('tokens', history(...readers, ...lower))).toMatchObject({ verdict: 'false' })
  })

  test('are false when one comes twice, even of leases that overlap', () => {
    expect(verdictOf('tokens', history(...first, ...lease('p1', 'y', 7, 120, 220, 90)))).toMatchObject({
      verdict: 'false',
    })
  })

  test('are false when a later one is lower, and true when the two overlapped', () => {
    expect(verdictOf('tokens', history(...first, ...lease('p1', 'y', 6, 400, 900, 300)))).toMatchObject({
      verdict: 'false',
    })
    expect(verdictOf('tokens', history(...first, ...lease('p1', 'y', 6, 400, 900, 90)))).toMatchObject({
      verdict: 'true',
    })
  })

  test('are unknown only if counters were lost before', () => {
    const lower = [...first, ...lease('p1', 'y', 6, 400, 900, 300)]
    expect(verdictOf('tokens', history(...lower, fault(200, 'evict', { key: 'ringfence:fence:{a}' })))).toMatchObject({
      verdict: 'unknown',
    })
    expect(verdictOf('tokens', history(...lower, fault(200, 'evict', { key: 'a' })))).toMatchObject({
      verdict: 'false',
    })
    expect(verdictOf('tokens', history(...lower, fault(200, 'jump', {}, 5000)))).toMatchObject({ verdict: 'false' })
    const forgot = [fault(200, 'crash', { memory: 'none' }), fault(210, 'jump', {}, -5000)]
    expect(verdictOf('tokens', history(...lower, ...forgot))).toMatchObject({ verdict: 'unknown' })
  })

  test('are not excused by a counter that was lost so long ago that numbers have grown beyond it since', () => {
    const lost = fault(200, 'flushall')
    expect(verdictOf('tokens', history(...first, lost, ...lease('p1', 'y', 6, 4000, 4500)))).toMatchObject({
      verdict: 'unknown',
    })
    expect(verdictOf('tokens', history(...first, lost, ...lease('p1', 'y', 6, 4300, 4800)))).toMatchObject({
      verdict: 'false',
    })
    const odd = fault(100, 'jump', {}, -500)
    expect(verdictOf('tokens', history(...first, odd, lost, ...lease('p1', 'y', 6, 4300, 4800)))).toMatchObject({
      verdict: 'unknown',
    })
  })
})

describe('the guarded store', () => {
  test('is false when an older token is accepted after a newer one', () => {
    const made = history(access('read', 10, 2, 0, 0), access('write', 20, 1, 0, 1))
    expect(verdictOf('guarded store', made)).toMatchObject({ verdict: 'false' })
  })

  test('is false when an update is overwritten unseen', () => {
    const made = history(access('write', 10, 1, 0, 1), access('write', 20, 2, 1, 1))
    expect(verdictOf('guarded store', made)).toMatchObject({ verdict: 'false' })
  })

  test('is true when every write is one more than what was there', () => {
    const made = history(access('write', 10, 1, 0, 1), access('write', 20, 1, 1, 2), access('write', 30, 2, 2, 3))
    expect(verdictOf('guarded store', made)).toMatchObject({ verdict: 'true' })
  })
})

describe('the signal', () => {
  test('is false after the end of validity, true before it', () => {
    expect(verdictOf('signal', history(...late(1101)))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('signal', history(...late(1099)))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('signal', history(...lease('p0', 'x', 1, 100, 1100)))).toMatchObject({ verdict: 'false' })
  })

  test('may come late by a pause that was under way, not by one that had ended', () => {
    expect(verdictOf('signal', history(...late(1502), pause(1000, 1500)))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('signal', history(...late(1502), pause(500, 1000)))).toMatchObject({ verdict: 'false' })
  })

  test('comes within a look at the clock that was set ahead, which takes longer where the clock is slow', () => {
    const on = { on: 'p0' }
    const jump = { ...fault(600, 'jump-process', {}, 5000), ...on }
    const slow = { ...fault(50, 'drift-process', { rate: 0.6 }), ...on }
    expect(verdictOf('signal', history(...late(1601), jump))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('signal', history(...late(2200), jump))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('signal', history(slow, ...late(2200), jump))).toMatchObject({ verdict: 'true' })
  })
})

describe('time left', () => {
  const message = { id: 5, process: 'p0', node: 'n1', owner: 'x', former: '', what: 'acquire' }
  const paused: HistoryEvent = { at: 500, kind: 'pause', process: 'p0', untilMs: 2000 }
  const over = lease('p0', 'x', 1, 2000, 2000, 100)

  test('is false when a lease is handed out that was over when its last answer came', () => {
    expect(verdictOf('time left', history({ at: 2000, kind: 'heard', ...message }, paused, ...over))).toMatchObject({
      verdict: 'false',
    })
  })

  test('is true when the process was paused after that', () => {
    expect(verdictOf('time left', history({ at: 490, kind: 'heard', ...message }, paused, ...over))).toMatchObject({
      verdict: 'true',
    })
  })
})

describe('progress', () => {
  test('is false when a call hangs', () => {
    const call: HistoryEvent = {
      at: 10,
      kind: 'call',
      process: 'p0',
      call: 1,
      resources: ['a'],
      waitMs: 100,
      turn: 'any',
      isBounded: false,
    }
    const later: HistoryEvent = { at: 60_000, kind: 'note', process: 'p0', text: 'much later' }
    expect(verdictOf('progress', history(call, later))).toMatchObject({ verdict: 'false' })
    expect(
      verdictOf('progress', history(call, { at: 120, kind: 'return', process: 'p0', call: 1, outcome: 'timed out' })),
    ).toMatchObject({ verdict: 'true' })
  })

  test('is false when somebody gets nothing after the healing, or needs the time of a silent node', () => {
    expect(verdictOf('progress', history(...turn('timed out', 500)))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('progress', history(...turn('granted', 120)))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('progress', history(...turn('granted', 20)))).toMatchObject({ verdict: 'true' })
  })

  test('may take an offer longer while a place is in line whose end was told by a message that was lost', () => {
    expect(verdictOf('progress', history(dropped(3500), ...turn('granted', 1900)))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('progress', history(dropped(3500), ...turn('granted', 2200)))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('progress', history(dropped(2900), ...turn('granted', 1900)))).toMatchObject({ verdict: 'false' })
  })
})

const rests = (isSet: boolean): HistoryEvent => ({ at: 150, kind: 'rests', process: 'p0', owner: 'x', isSet })

describe('a job that is run once', () => {
  const job: HistoryEvent[] = [
    ...lease('p0', 'x', 1, 100, 200),
    { at: 100, kind: 'once', process: 'p0', owner: 'x', resource: 'a', atLeastMs: 1000, ttlMs: 1000 },
    ends('p0', 'x', 150),
  ]

  test('is false when somebody has its resource before its time is over, also if its locks were closed', () => {
    const early = lease('p1', 'y', 2, 700, 900)
    expect(verdictOf('once', history(...job, ...early))).toMatchObject({ verdict: 'false', owners: ['x', 'y'] })
    expect(verdictOf('once', history(...job, ...lease('p1', 'y', 2, 1100, 1200)))).toMatchObject({ verdict: 'true' })
    const closing: HistoryEvent = { at: 500, kind: 'closing', process: 'p0' }
    expect(verdictOf('once', history(...job, closing, ...early))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('once', history(...job, fault(300, 'flushall'), ...early))).toMatchObject({ verdict: 'unknown' })
  })

  test('counts from the request for its lease, unless the servers have set the rest of its time', () => {
    const asked: HistoryEvent = { ...send(1, 'acquire'), at: 40 }
    const next = lease('p1', 'y', 2, 1050, 1200)
    const tooEarly = lease('p1', 'y', 2, 1000, 1200)
    expect(verdictOf('once', history(asked, ...job, ...next))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('once', history(asked, ...job, rests(false), ...next))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('once', history(asked, ...job, ...tooEarly))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('once', history(asked, ...job, rests(true), ...next))).toMatchObject({ verdict: 'false' })
  })

  test('is recorded once as begun and once as ended, and as done only if it has begun', () => {
    expect(verdictOf('once', history(...job, recorded(101, 'began'), recorded(160, 'done')))).toMatchObject({
      verdict: 'true',
    })
    expect(verdictOf('once', history(...job, recorded(101, 'began'), recorded(160, 'lost')))).toMatchObject({
      verdict: 'true',
    })
    expect(verdictOf('once', history(...job, recorded(160, 'done'), recorded(170, 'done')))).toMatchObject({
      verdict: 'false',
    })
    expect(verdictOf('once', history(...job, recorded(160, 'done', 'z')))).toMatchObject({ verdict: 'false' })
  })

  test('does not count a longer ttl than its time', () => {
    const asked: HistoryEvent = { ...send(1, 'acquire'), at: 40 }
    const long = job.map((event) => (event.kind === 'once' ? { ...event, ttlMs: 5000 } : event))
    expect(verdictOf('once', history(asked, ...long, ...lease('p1', 'y', 2, 1050, 1200)))).toMatchObject({
      verdict: 'false',
    })
    expect(verdictOf('once', history(asked, ...long, ...lease('p1', 'y', 2, 1100, 1200)))).toMatchObject({
      verdict: 'true',
    })
  })
})

const send = (id: number, what: string): HistoryEvent => ({
  at: 300,
  kind: 'send',
  what,
  again: false,
  id,
  process: 'p0',
  node: 'n1',
  owner: 'x',
  former: '',
})

describe('closed locks', () => {
  const closing: HistoryEvent = { at: 100, kind: 'closing', process: 'p0' }
  const shut: HistoryEvent = { at: 200, kind: 'shut', process: 'p0', lastId: 7 }
  test('are false when they give a lease that is not over, or take or renew one', () => {
    expect(verdictOf('closed', history(closing, ...lease('p0', 'x', 1, 101, 900)))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('closed', history(closing, ...lease('p0', 'x', 1, 101, 101)))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('closed', history(closing, shut, send(8, 'extend')))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('closed', history(closing, shut, send(8, 'release')))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('closed', history(closing, shut, send(7, 'acquire')))).toMatchObject({ verdict: 'true' })
  })
})

const exec = (what: string, reply: string | ServerError, kept = 0): HistoryEvent => ({
  at: 300,
  kind: 'exec',
  what,
  reply: [reply],
  late: false,
  kept,
  id: 8,
  process: 'p0',
  node: 'n1',
  owner: 'x',
  former: '',
})

describe('manners', () => {
  test('are false when an extension puts back a lock that was gone', () => {
    const put = { ...exec('extend', '1'), remade: true } as HistoryEvent
    expect(verdictOf('manners', history(put))).toMatchObject({ verdict: 'false' })
  })

  test('are false when a server is sent what it refuses, what harms others, or a release that leaves something', () => {
    const fraction = new ServerError('ERR value is not an integer or out of range')
    expect(verdictOf('manners', history(exec('extend', fraction)))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('manners', history(exec('SCRIPT FLUSH', 'OK')))).toMatchObject({ verdict: 'false' })
    expect(verdictOf('manners', history(exec('release', '1', 1)))).toMatchObject({ verdict: 'false' })
    const denied = new ServerError('NOPERM no')
    expect(verdictOf('manners', history(exec('release', denied)))).toMatchObject({ verdict: 'true' })
  })
})

describe('what is left', () => {
  const message = { id: 5, process: 'p0', node: 'n1', owner: 'x', former: '' }
  const granted: HistoryEvent[] = [
    { at: 10, kind: 'send', what: 'acquire', again: false, ...message },
    { at: 12, kind: 'exec', what: 'acquire', reply: ['77'], late: false, kept: 0, ...message },
    { at: 14, kind: 'heard', what: 'acquire', ...message },
  ]
  const release: HistoryEvent = { at: 20, kind: 'send', what: 'release', again: false, ...message, id: 6 }

  test('is false when a grant that was heard of is never given back, true if a release was sent', () => {
    expect(verdictOf('clean-up', history(...granted))).toMatchObject({ verdict: 'false', owners: ['x'] })
    expect(verdictOf('clean-up', history(...granted, release))).toMatchObject({ verdict: 'true' })
    expect(verdictOf('clean-up', history(...granted, { at: 15, kind: 'crash', process: 'p0' }))).toMatchObject({
      verdict: 'true',
    })
  })

  test('is false when a lock key is there at the end, or a timer, or thousands of commands in a second', () => {
    const left: HistoryEvent = { at: 9999, kind: 'left', node: 'n1', key: 'a', value: 'x', leftMs: 50 }
    expect(verdictOf('no key beyond its ttl', history(left))).toMatchObject({ verdict: 'false' })
    const closed: HistoryEvent = { at: 9999, kind: 'closed', process: 'p0', timers: 1, subscriptions: 0, pending: 0 }
    expect(verdictOf('no leaks', history(closed))).toMatchObject({ verdict: 'false' })
    const storm = Array.from({ length: 4001 }, (_, at): HistoryEvent => ({ ...release, at: 3000 + at / 10 }))
    expect(verdictOf('no busy loop', history(...storm))).toMatchObject({ verdict: 'false' })
    const renewals = (again: boolean): HistoryEvent[] =>
      storm.slice(0, 201).map((event) => ({ ...event, kind: 'send', what: 'extend', again }) as HistoryEvent)
    expect(verdict('no busy loop', ...renewals(false))).toBe('false')
    expect(verdict('no busy loop', ...renewals(true))).toBe('true')
    expect(check(history()).filter(({ verdict }) => verdict === 'false')).toEqual([])
  })
})

function verdict(checker: string, ...events: HistoryEvent[]): Verdict['verdict'] {
  return verdictOf(checker, history(...events)).verdict
}

const permit = (process: string, owner: string, number: number, from: number, to: number): HistoryEvent[] =>
  lease(process, owner, 1, from, to).map((event) =>
    event.kind === 'holds' ? { ...event, resources: [`pool#${number}`] } : event,
  )

const moved: HistoryEvent = { at: 200, kind: 'ends', process: 'p0', owner: 'o1', token: 1, why: 'moved' }

const adopted = (at: number, process: string, token: number): HistoryEvent => ({
  at,
  kind: 'adopted',
  process,
  owner: `${process}-owner`,
  token,
  resources: ['a'],
  former: 'o1',
  formerToken: 1,
})

const until = (untilMs: number): HistoryEvent => ({
  at: 350,
  kind: 'until',
  process: 'p0',
  owner: 'o1',
  token: 1,
  untilMs,
})

const forced = (at: number): HistoryEvent => ({ at, kind: 'forced', process: 'p2', owner: 'o1' })

const nested = (outcome: 'joined' | 'own' | 'refused', inner: number, isHeld = true): HistoryEvent => ({
  at: 120,
  kind: 'nested',
  process: 'p0',
  owner: 'o1',
  token: 1,
  outcome,
  inner,
  isHeld,
})

const released = (at: number, reply: number, node = 'n0'): HistoryEvent => ({
  at,
  kind: 'exec',
  id: 7,
  process: 'p0',
  node,
  what: 'release',
  owner: 'o1',
  former: '',
  late: false,
  reply: [reply],
  kept: 0,
})

const effect = (at: number, token: number, ran: boolean, keepMs = Infinity): HistoryEvent => ({
  at,
  kind: 'effect',
  process: 'p0',
  resource: 'a',
  key: 'e',
  token,
  ran,
  keepMs,
  value: 'p0:1 made it 1',
})

const told = (value: string, ran: boolean, asked = 'p0:1', token = 1): HistoryEvent => ({
  at: 500,
  kind: 'told',
  process: 'p0',
  resource: 'a',
  key: 'e',
  token,
  ran,
  value,
  asked,
})

const around = lease('p0', 'o1', 1, 100, 200)

describe('the other kinds of locks', () => {
  test('permits: no more than there are at a time, and none beyond them', () => {
    const two = [...permit('p0', 'o1', 0, 100, 200), ...permit('p1', 'o2', 1, 110, 200)]
    expect(verdictOf('permits', historyOf({ permits: 2 }, ...two)).verdict).toBe('true')
    expect(verdictOf('permits', historyOf({ permits: 1 }, ...two)).verdict).toBe('false')
    const third = permit('p2', 'o3', 1, 120, 130)
    expect(verdictOf('permits', historyOf({ permits: 2 }, ...two, ...third)).verdict).toBe('false')
    expect(verdictOf('permits', history()).verdict).toBe('unknown')
  })

  test('adoption: once, by a greater token, after it was handed off, and before anybody else has the resource', () => {
    expect(verdict('adoption', moved, adopted(300, 'p1', 2))).toBe('true')
    expect(verdict('adoption', moved, adopted(300, 'p1', 2), adopted(400, 'p2', 3))).toBe('false')
    expect(verdict('adoption', moved, adopted(300, 'p1', 1))).toBe('false')
    expect(verdict('adoption', adopted(300, 'p1', 2))).toBe('false')
    expect(verdict('adoption', moved, ...lease('p2', 'o2', 2, 250, 260), adopted(300, 'p1', 3))).toBe('false')
    expect(verdict('adoption')).toBe('unknown')
  })

  test('adoption of a lease whose holder goes on: it is not renewed there any more', () => {
    const offered: HistoryEvent = { at: 150, kind: 'offered', process: 'p0', owner: 'o1' }
    expect(verdict('adoption', offered, adopted(300, 'p1', 2))).toBe('true')
    expect(verdict('adoption', offered, adopted(300, 'p1', 2), until(1290))).toBe('true')
    expect(verdict('adoption', offered, adopted(300, 'p1', 2), until(1400))).toBe('false')
    expect(verdict('adoption', offered, ...lease('p2', 'o2', 2, 250, 260), adopted(300, 'p1', 3))).toBe('false')
  })

  test('exclusion: what was adopted, or ended by a person, is its holder’s no more, though that learns it later', () => {
    const before = [...lease('p0', 'o1', 1, 100, 1100), ...lease('p1', 'p1-owner', 2, 300, 1300)]
    expect(verdict('exclusion', ...before)).toBe('false')
    expect(verdict('exclusion', ...before, adopted(300, 'p1', 2))).toBe('true')
    expect(verdict('exclusion', ...before, forced(200))).toBe('true')
    expect(verdict('exclusion', ...before, forced(400))).toBe('false')
  })

  test('nesting: the lease around a call is joined with its token, and released by nobody but its own call', () => {
    const ends: HistoryEvent = { at: 200, kind: 'ends', process: 'p0', owner: 'o1', token: 1, why: 'released' }
    expect(verdict('nesting', ...around, nested('joined', 1), ends, released(210, 0))).toBe('true')
    expect(verdict('nesting', ...around, nested('joined', 1), released(150, -1))).toBe('true')
    // One node may be left; it takes two of three to end the lease.
    expect(verdict('nesting', ...around, nested('joined', 1), released(150, 0))).toBe('true')
    const twice = [released(150, 0), released(151, 0, 'n1')]
    expect(verdict('nesting', ...around, nested('joined', 1), ...twice)).toBe('false')
    const signal: HistoryEvent = { at: 140, kind: 'signal', process: 'p0', owner: 'o1', token: 1 }
    expect(verdict('nesting', ...around, nested('joined', 1), signal, ...twice)).toBe('true')
    expect(verdict('nesting', ...around, nested('joined', 2))).toBe('false')
    expect(
      verdict('nesting', ...around, nested('joined', 1), {
        at: 130,
        kind: 'unnested',
        process: 'p0',
        owner: 'o1',
        token: 1,
        released: true,
      }),
    ).toBe('false')
    expect(verdict('nesting', ...around, nested('refused', 0))).toBe('false')
    expect(verdict('nesting', ...around, nested('refused', 0, false))).toBe('true')
    expect(verdict('nesting', ...around, nested('own', 2))).toBe('false')
  })

  test('effects: once while they are kept, told as they were, and never under an older token', () => {
    expect(verdict('effects', effect(100, 1, true), effect(200, 2, false), told('p0:1 made it 1', true))).toBe('true')
    expect(verdict('effects', effect(100, 1, true), effect(200, 2, true))).toBe('false')
    expect(verdict('effects', effect(100, 1, true, 50), effect(200, 2, true))).toBe('true')
    expect(verdict('effects', effect(100, 2, true), effect(200, 1, false))).toBe('false')
    expect(verdict('effects', effect(100, 1, true), told('p1:1 made it 1', false))).toBe('false')
    expect(verdict('effects', effect(100, 1, true), told('p0:1 made it 1', true, 'p0:2'))).toBe('false')
  })
})
