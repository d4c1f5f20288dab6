import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { systemClock, type Clock } from '../../src/clock.ts'
import { until } from '../../harness/until.ts'
import { CALLS, tokenFrom } from '../unit/fuzz/calls.ts'
import { always, FUZZ_TIMEOUT_MS, isLong } from '../unit/fuzz/for-so-long.ts'
import { DRIVERS, type Driver } from './drivers.ts'
import { isBroken, scripts, startRawServer, type Piece, type Script } from './raw-server.ts'

/** Each request has a deadline of 60 ms, and the doctor has 5 s of its own. The rest is for a machine that does much else. */
const LONGEST_MS = 20_000

interface Run extends Script {
  readonly call: string
}

/** The doctor measures for seconds: not in the test run. */
const calls = Object.keys(CALLS).filter((call) => isLong || call !== 'check')
const run: fc.Arbitrary<Run> = fc
  .tuple(scripts, fc.constantFrom(...calls))
  .map(([script, call]) => ({ ...script, call }))
/** They wait most of the time, and so several are played at once. */
const runs = fc.array(run, { minLength: 1, maxLength: 8 })

const said = (answer: number, change: Piece['change'] = { kind: 'none' }): Piece => ({ answer, change })
const instead = (...bytes: readonly number[]): Piece => said(0, { kind: 'instead', bytes: new Uint8Array(bytes) })
const onAcquire = (...answers: readonly Piece[]): Run => ({ opens: true, answers: [answers], call: 'acquire' })

/** What was found once. */
const FOUND: Readonly<Record<string, readonly Run[]>> = {
  // A number out of the beginning of one and the end of another; a null that nobody has asked for.
  ioredis: [onAcquire(said(1, { kind: 'cut', at: 3 }), said(0)), onAcquire(said(5), said(5), said(5))],
  // A length that is negative.
  pg: [onAcquire(said(0, { kind: 'length', at: 20, value: -(2 ** 31) }))],
  // A character set that the driver does not know, in the greeting.
  mariadb: [{ opens: false, answers: [[said(14, { kind: 'byte', at: 35, value: 12 })]], call: 'acquire' }],
  // An answer that ends before its header does, and one whose length is negative.
  'node-zookeeper-client': [onAcquire(instead(0, 0, 0, 4, 0, 0, 0, 1)), onAcquire(instead(255, 255, 255, 251))],
}

/** The system's clock, and how many timers of an engine are set. */
function countingClock(): { readonly clock: Clock; readonly timers: () => number } {
  const open = new Set<object>()
  const timer: Clock['timer'] = (callback, delayMs, background) => {
    const one = {}
    open.add(one)
    const fire = (): void => {
      open.delete(one)
      callback()
    }
    const inner = systemClock.timer(fire, delayMs, background)
    const cancel = (): void => {
      open.delete(one)
      inner.cancel()
    }
    return { cancel }
  }
  return { clock: { ...systemClock, timer }, timers: () => open.size }
}

/** In the text of Redis, PostgreSQL and MariaDB, or as eight bytes, from either end. An engine may choose the number after one. */
function isSaid(said: Buffer, token: bigint): boolean {
  return [token, token - 1n].some((number) => {
    const bytes = Buffer.alloc(8)
    bytes.writeBigInt64BE(number)
    return [Buffer.from(String(number)), bytes, Buffer.from(bytes.toReversed())].some((one) => said.includes(one))
  })
}

async function play({ protocol, open, guessesNumbers }: Driver, { call, ...script }: Run): Promise<void> {
  const server = await startRawServer(protocol, script)
  const { clock, timers } = countingClock()
  const { engine, close } = open(server.port, clock)
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${call} has not ended after ${LONGEST_MS} ms`)), LONGEST_MS)
  })
  try {
    const token = await Promise.race([tokenFrom(engine, call), late])
    const isGuessed = guessesNumbers === true && isBroken(script)
    expect(token === undefined || isGuessed || isSaid(server.said(), token), `the token ${token}`).toBe(true)
  } finally {
    clearTimeout(timer)
    // Drivers wait for the answer to their farewell, which may never come: they are done when their connection is gone.
    const closed = Promise.allSettled([close()])
    await server.stop()
    await closed
  }
  await until(() => timers() === 0, { what: 'no timer of the engine is left' })
}

/** What drivers throw from the listener of a socket meets nobody but the process. Vitest's own listeners get all the rest, and fail the run. */
const EVENTS = ['uncaughtException', 'unhandledRejection'] as const
const handlers = EVENTS.map((event) => ({ event, listeners: process.rawListeners(event) as ((e: unknown) => void)[] }))
/** The packages that may throw so at the moment. */
let throwing: RegExp | undefined
const isTheirs = (error: unknown): boolean => {
  const stack = String((error as Error | undefined)?.stack)
  return throwing?.test(stack) === true && !stack.includes('/src/')
}

/** Of things that keep a process alive. The pool of Vitest has some, too. */
const alive = (): number => process.getActiveResourcesInfo().filter((kind) => /Timeout|TCP/.test(kind)).length

// Not in the test run: once such bytes took all the memory of the process there (docs/testing/fuzzing.md).
describe.runIf(isLong)('the bytes of a server', { retry: 0 }, () => {
  beforeAll(() => {
    for (const { event, listeners } of handlers) {
      process.removeAllListeners(event)
      process.on(event, (error: unknown) => {
        if (!isTheirs(error)) for (const listener of listeners) listener(error)
      })
    }
    // mysql2 prints what it does not understand.
    for (const method of ['error', 'trace'] as const) vi.spyOn(console, method).mockImplementation(() => undefined)
  })
  afterAll(() => {
    for (const { event, listeners } of handlers) {
      process.removeAllListeners(event)
      for (const listener of listeners) process.on(event, listener)
    }
    vi.restoreAllMocks()
  })

  test.each(Object.entries(DRIVERS))(
    '%s: whatever comes, every call is an answer or an error of ours in time, no lease comes out of nothing, and nothing is left',
    { timeout: FUZZ_TIMEOUT_MS },
    async (name, driver) => {
      throwing = driver.throws
      const before = alive()
      const part = 1 / Object.keys(DRIVERS).length
      const extent = { runs: 3, part, isTheirs, examples: [FOUND[name] ?? []] }
      await always(runs, extent, (all) => Promise.all(all.map((one) => play(driver, one))))
      await until(() => alive() <= before + 2, { what: 'the timers and sockets of the driver are gone' })
    },
  )
})
