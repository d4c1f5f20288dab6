import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { Engine } from '../../src/engine.ts'
import type { LockEvent } from '../../src/events.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { startWorker, type Worker } from '../../harness/child.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'

/** The servers of one trial, and engines on them. */
export interface TrialServers extends AsyncDisposable {
  /** For the connector, in another process. */
  readonly env: Record<string, string>
  /** A new engine in this process; `close` of it also ends its client. */
  engine(): Promise<Engine>
}

/** Servers that can be broken; all of them at once. */
export interface BreakableServers extends TrialServers {
  freeze(): Promise<void>
  thaw(): Promise<void>
  kill(): Promise<void>
  restart(): Promise<void>
}

export interface RaceSetup {
  /** A file of test/process/connect/ that exports `connect(): Promise<Engine>`. */
  readonly connector: string
  /** Servers for leases of at most this ttl. */
  start(ttlMs: number): Promise<TrialServers>
  /** Of the holder that is killed: long enough that a busy machine renews in time. Default 6 s. */
  readonly ttlMs?: number
}

interface Message {
  readonly type: string
  readonly [field: string]: unknown
}

const ROUNDS = 100
const SHARED_ROUNDS = 45
/** Of those who race: none of them ends this way. */
const RACE_TTL_MS = 20_000
/** More than what a trial waits for takes together. Trials wait most of the time, so those of an engine run side by side. */
const TIMEOUT = { timeout: 180_000 }
/** A process starts, loads its driver and connects in this time even on a machine that does much else. */
const START_MS = 40_000

/** What two processes and a killed one must see on every engine. */
export function processTrials(setup: RaceSetup & { readonly nextWithinMs: number }): void {
  const { connector, ttlMs = 6000 } = setup

  test(
    'two processes race for 200 rounds: never both inside, every token greater than the one before',
    TIMEOUT,
    async () => {
      await using servers = await setup.start(RACE_TTL_MS)
      await using folder = temporaryFolder()
      const workers: Worker<Message>[] = []
      for (let i = 0; i < 2; i++) {
        const args = [connector, String(RACE_TTL_MS), folder.path, String(ROUNDS)]
        workers.push(work('racer.mjs', args, servers.env))
      }
      try {
        for (const worker of workers) await worker.next(isType('ready'), { withinMs: START_MS, what: 'sign of life' })
        for (const worker of workers) worker.send({ type: 'go' })
        for (const worker of workers) await worker.next(isType('done'), { withinMs: 50_000, what: 'end of its rounds' })
      } finally {
        for (const worker of workers) await worker[Symbol.asyncDispose]()
      }
      const visits = readFileSync(`${folder.path}/log`, 'utf8').trim().split('\n')
      expect(visits).toHaveLength(2 * ROUNDS)
      const tokens = visits.map((visit) => BigInt(visit.split(' ')[1]!))
      expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)))
    },
  )

  test('after SIGKILL of the holder the next one gets in, with a greater token', TIMEOUT, async () => {
    await using servers = await setup.start(ttlMs)
    await using locks = await openLocks(servers, ttlMs)
    const holder = work('keep.mjs', [connector, String(ttlMs)], servers.env)
    const { token } = await holder.next(isType('acquired'), { withinMs: START_MS, what: 'lease' })
    expect(await locks.tryAcquire('trial')).toBeNull()
    await holder.kill()
    const killedMs = performance.now()
    await using lease = await locks.acquire('trial', { wait: setup.nextWithinMs })
    const afterMs = Math.round(performance.now() - killedMs)
    console.log(
      `${connector}: the next one got in ${afterMs} ms after SIGKILL of the holder, with a ttl of ${ttlMs} ms`,
    )
    expect(lease.token).toBeGreaterThan(BigInt(String(token)))
  })
}

/** What processes must see on an engine that has shared leases. */
export function sharedTrials(setup: RaceSetup & { readonly nextWithinMs: number }): void {
  const { connector, ttlMs = 6000 } = setup

  test('four processes read and write: no writer ever meets anyone, and tokens follow the order', TIMEOUT, async () => {
    await using servers = await setup.start(RACE_TTL_MS)
    await using folder = temporaryFolder()
    const args = [connector, String(RACE_TTL_MS), folder.path, String(SHARED_ROUNDS)]
    const workers = Array.from({ length: 4 }, () => work('sharer.mjs', args, servers.env))
    try {
      for (const worker of workers) await worker.next(isType('ready'), { withinMs: START_MS, what: 'sign of life' })
      for (const worker of workers) worker.send({ type: 'go' })
      for (const worker of workers) await worker.next(isType('done'), { withinMs: 100_000, what: 'end of its rounds' })
    } finally {
      for (const worker of workers) await worker[Symbol.asyncDispose]()
    }
    const visits = readFileSync(`${folder.path}/log`, 'utf8').trim().split('\n')
    expect(visits).toHaveLength(4 * SHARED_ROUNDS)
    let [written, highest] = [0n, 0n]
    for (const visit of visits) {
      const [kind, text] = visit.split(' ')
      const token = BigInt(text!)
      expect(token).toBeGreaterThan(kind === 'writer' ? highest : written)
      if (kind === 'writer') written = token
      if (token > highest) highest = token
    }
    const together = Math.max(...visits.map((visit) => Number(visit.split(' ')[2] ?? 0)))
    expect(together).toBeGreaterThan(1)
  })

  test('after SIGKILL of a reader a writer gets in, with a greater token', TIMEOUT, async () => {
    await using servers = await setup.start(ttlMs)
    await using locks = await openLocks(servers, ttlMs)
    const reader = work('keep.mjs', [connector, String(ttlMs), 'shared'], servers.env)
    const { token } = await reader.next(isType('acquired'), { withinMs: START_MS, what: 'lease' })
    expect(await locks.tryAcquire('trial')).toBeNull()
    await using beside = await locks.acquire('trial', { shared: true })
    await reader.kill()
    await beside.release()
    await using writer = await locks.acquire('trial', { wait: setup.nextWithinMs })
    expect(writer.token).toBeGreaterThan(BigInt(String(token)))
  })
}

export interface FaultSetup {
  start(): Promise<BreakableServers>
  /** Must exceed the time that the servers need to restart on a busy machine, several times. Default 10 s. */
  readonly ttlMs?: number
  /** A lease is still held after the servers were killed and came back. */
  readonly survivesRestart: boolean
}

/** What a holder must see when its servers fail. */
export function faultTrials(setup: FaultSetup): void {
  const { ttlMs = 10_000 } = setup

  test(
    'the servers are frozen for less than the ttl: a lease is in doubt, then proved again or given up',
    TIMEOUT,
    async () => {
      await using servers = await setup.start()
      await using locks = await openLocks(servers, ttlMs)
      const lease = await locks.acquire('trial')
      const stopped = await locks.acquire('stopped', { onDoubt: 'stop' })
      const { signal } = stopped
      expect(lease.state).toBe('held')
      await servers.freeze()
      await until(() => signal.aborted && lease.state === 'doubtful', { what: 'a doubt', withinMs: ttlMs })
      expect(signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'doubtful' })
      const proof = lease.proved()
      await servers.thaw()
      await proof
      expect([lease.held, lease.state]).toEqual([true, 'held'])
      expect(await lease.release()).toBe(true)
      // It was released in the background, or ends with its ttl.
      await using _next = await locks.acquire('stopped', { wait: 2 * ttlMs })
    },
  )

  test('the servers vanish: the signal aborts before they could give the lease to someone else', TIMEOUT, async () => {
    await using servers = await setup.start()
    await using locks = await openLocks(servers, ttlMs)
    const lease = await locks.acquire('trial')
    await lease.extend()
    await servers.kill()
    await until(() => lease.signal.aborted, { what: 'the signal', withinMs: 2 * ttlMs })
    const provedMs = locks.timeOfLast('renewed')
    const lostMs = locks.timeOfLast('lost')
    // What this machine did not run at all is nobody's fault; the event says how much that was.
    const stalledMs = locks.events.reduce((sum, event) => sum + (event.type === 'stalled' ? event.lateMs : 0), 0)
    expect(lostMs - provedMs - stalledMs).toBeLessThan(ttlMs)
    expect(lease.signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'unreachable' })
    expect(lease.held).toBe(false)
    await servers.restart()
  })

  test('the servers are killed and come back while a lease is held; tokens go on growing', TIMEOUT, async () => {
    await using servers = await setup.start()
    await using locks = await openLocks(servers, ttlMs)
    const lease = await locks.acquire('trial')
    await servers.kill()
    await servers.restart()
    const before = renewals(locks)
    await until(() => lease.signal.aborted || renewals(locks) > before, { what: 'a verdict', withinMs: 2 * ttlMs })
    expect(lease.held).toBe(setup.survivesRestart)
    await lease.release()
    const tokens = [lease.token]
    for (let i = 0; i < 3; i++) {
      await using next = await locks.acquire('trial', { wait: 2 * ttlMs })
      tokens.push(next.token)
    }
    await servers.kill()
    await servers.restart()
    await using last = await locks.acquire('trial', { wait: '40s' })
    tokens.push(last.token)
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)))
  })
}

interface TrialLocks extends Locks {
  readonly events: readonly LockEvent[]
  timeOfLast(type: LockEvent['type']): number
}

async function openLocks(servers: TrialServers, ttlMs: number): Promise<TrialLocks> {
  const events: LockEvent[] = []
  const times: number[] = []
  const observe = (event: LockEvent): void => {
    events.push(event)
    times.push(performance.now())
  }
  const locks = createLocks(await servers.engine(), { ttl: ttlMs, observe })
  return Object.assign(locks, {
    events,
    timeOfLast: (type: LockEvent['type']) => times[events.findLastIndex((event) => event.type === type)] ?? Number.NaN,
  })
}

function renewals({ events }: TrialLocks): number {
  return events.filter(({ type }) => type === 'renewed').length
}

function work(file: string, args: readonly string[], env: Record<string, string>): Worker<Message> {
  return startWorker<Message>(new URL(`../process/workers/${file}`, import.meta.url), { args, env })
}

function isType(type: string) {
  return (message: Message): boolean => message.type === type
}

function temporaryFolder(): AsyncDisposable & { readonly path: string } {
  const path = createFolder('trial')
  return { path, [Symbol.asyncDispose]: async () => removeFolder(path) }
}
