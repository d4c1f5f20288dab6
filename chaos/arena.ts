import { startProxy, type Proxy } from '../harness/faults/proxy.ts'
import { canMoveClock, moveClock } from '../harness/faults/vdso-clock.ts'
import type { ServerHandle } from '../harness/handle.ts'
import type { FaultKind } from './deck.ts'

/** The servers of one engine, as clients and the nemesis see them. */
export interface Arena extends AsyncDisposable {
  readonly connector: string
  readonly targets: readonly Target[]
  /** The faults that it is there for: they come first. */
  readonly first?: readonly FaultKind[]
  /** What is not promised where a replica takes over: then only the order of tokens is checked, and what the guard lets pass. */
  readonly exclusion?: 'not promised'
  /** The servers talk with each other. */
  readonly isGroup?: boolean
  /** How many of the targets must be well for progress. */
  readonly majority: number
  readonly ttlMs: number
  /** How long after a majority is well again old leases may still be in the way. */
  readonly settleMs: number
  /**
   * Nobody may have to wait longer for an account, in settled times. Generous: machines are noisy, a stopped holder keeps
   * its account for a ttl, and chance decides among the waiters. What is stuck for good is beyond every bound.
   */
  readonly mostGapMs: number
  /** How long after the last client has ended nothing of any lease may be left. */
  readonly clearMs: number
  /** What the connector of a client reads; clients are on one of two sides, so that a server can be cut off from half of them. */
  env(client: number): Record<string, string>
  /** Who leads the servers now, where one of them does. */
  leader?(): Promise<ServerHandle>
  /** What is left of leases on the servers. */
  leftovers(): Promise<string[]>
}

/** A server, and what can be done to it. */
export interface Target {
  readonly name: string
  readonly server: ServerHandle
  /** The way to it, of each side; none where clients find the servers by themselves. */
  readonly ways: readonly [Proxy, Proxy] | readonly []
  /** After a crash: it has what it had, or nothing. */
  readonly memory: 'kept' | 'lost'
  /** How long after its start it does not vote. */
  readonly sitOutMs: number
  readonly clock?: Clock
  /** Puts an empty server in its place that has been running for long. */
  readonly replace?: () => Promise<void>
  readonly copy?: Copy
}

/** Its wall clock. */
export interface Clock {
  readonly shift: (offsetMs: number) => void | Promise<void>
  readonly jumpMs: number
  /** False if leases go by a monotonic clock, so that a jump excuses nothing. Default true. */
  readonly isForLeases?: boolean
}

/** How to make a copy of a server's data, and to put it back. */
export interface Copy {
  readonly make: () => void
  /** Starts the server, which is down, with the copy instead of what it had. */
  readonly restore: () => Promise<void>
  /** How long it sits out then; and a copy that is younger than that could not be noticed. */
  readonly sitOutMs: number
}

export async function startTarget(
  name: string,
  server: ServerHandle,
  rest: Partial<Pick<Target, 'memory' | 'sitOutMs' | 'clock' | 'copy'>> = {},
): Promise<Target & { readonly ways: readonly [Proxy, Proxy] }> {
  const ways = [await startProxy(server.port), await startProxy(server.port)] as const
  return { name, server, ways, memory: 'kept', sitOutMs: 0, ...rest }
}

/** Of a server that needs nothing for it when it is started. */
export function clockOf(server: ServerHandle, rest: Omit<Clock, 'shift'>): { clock?: Clock } {
  return canMoveClock() ? { clock: { shift: (ms) => moveClock(server, ms / 1000), ...rest } } : {}
}

/** The ports by which a client reaches the targets. */
export function portsOf(targets: readonly Target[], client: number): number[] {
  return targets.map(({ ways, server }) => ways[client % 2]?.port ?? server.port)
}

/** Each side has some of each, or all of some: the sides are even and odd clients. */
export function driverOf(client: number, drivers: readonly string[]): string {
  return drivers[(client + Math.floor(client / drivers.length)) % drivers.length]!
}

export async function stopTargets(targets: readonly Target[]): Promise<void> {
  for (const { ways, server } of targets) {
    for (const way of ways) await way.close()
    await server.stop()
  }
}
