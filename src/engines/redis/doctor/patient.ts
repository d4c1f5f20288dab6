import { sleep, type Clock } from '../../../clock.ts'
import type { Finding } from '../../../engine.ts'
import type { RedisClient, RedisMaster } from '../client.ts'

/** What the doctor is told. Everything it sends only reads, so that a command which runs late does no harm. */
export interface CheckPlan {
  readonly clients: readonly RedisClient[]
  readonly clock: Clock
  readonly ttlMs: number
  /** How much of the ttl clocks may eat up. */
  readonly driftMs: number
  readonly restart: 'auto' | 'strict' | 'trust'
  /** Of the lock keys. Default none. */
  readonly prefix?: string
  /** How many replicas must acknowledge. Default 0. */
  readonly replicas?: number
}

/** A finding before it is known whose it is. */
export type Diagnosis = Omit<Finding, 'node'>

export type Reply =
  | { readonly kind: 'reply'; readonly value: unknown }
  | { readonly kind: 'error'; readonly message: string }

/** As long as the engine waits for the slowest node; a new connection may have to be made in it. */
export const PATIENCE_MS = 2000
/** For all questions to one server: a healthy one a continent away needs about 5 s. */
const VISIT_MS = 20_000

/** The server has not answered in time, so that asking it further makes no sense. */
export class SilentError extends Error {}

/** One server: of a plain client the only one, of a Cluster client one of its masters. */
export class Patient {
  readonly label: string
  /** Which of the plan's clients reaches it. */
  readonly member: number
  readonly client: RedisClient
  readonly clock: Clock
  readonly #run: RedisMaster['run']
  readonly #endMs: number

  constructor(client: RedisClient, member: number, label: string, master: RedisMaster, clock: Clock) {
    this.client = client
    this.member = member
    this.label = label
    this.clock = clock
    this.#run = (command) => master.run(command)
    this.#endMs = clock.monotonicMs() + VISIT_MS
  }

  /** Rejects with `SilentError` alone; what the server or the connection refuses is a reply too. */
  ask(...command: readonly string[]): Promise<Reply> {
    return this.bounded(() => this.#run(command))
  }

  async bounded(work: () => Promise<unknown>): Promise<Reply> {
    const leftMs = this.#endMs - this.clock.monotonicMs()
    if (leftMs <= 0) throw new SilentError(`not done with all questions within ${VISIT_MS} ms`)
    return within(this.clock, Math.min(PATIENCE_MS, leftMs), work)
  }

  pause(delayMs: number): Promise<void> {
    return sleep(this.clock, delayMs)
  }
}

/** Settles in time whatever the work does: a driver may hang, throw at once, or reject much later. */
export function within(clock: Clock, limitMs: number, work: () => Promise<unknown>): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const timer = clock.timer(() => reject(new SilentError(`no answer within ${Math.round(limitMs)} ms`)), limitMs)
    const settle = (reply: Reply): void => {
      timer.cancel()
      resolve(reply)
    }
    started(work).then(
      (value) => settle({ kind: 'reply', value }),
      (error: unknown) => settle({ kind: 'error', message: messageOf(error) }),
    )
  })
}

/** Servers repeat what they were sent, which says nothing here. */
export function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  return message.replace(/,? with args beginning with:.*$/s, '')
}

async function started(work: () => Promise<unknown>): Promise<unknown> {
  return work()
}

/** The server knows us, and does not let us run it; or it has no such command. Never "try again later". */
export function isDenied(message: string): boolean {
  return (
    /\bNOPERM\b|\bPermissionDenied\b|no permissions|can't run this command/i.test(message) || isUnknownCommand(message)
  )
}

/** Renamed or disabled, as managed services do, or too old a server. */
export function isUnknownCommand(message: string): boolean {
  return /unknown (redis |valkey )?(sub)?command(?! or wrong number)|command is (disabled|not allowed)/i.test(message)
}

export function milliseconds(ms: number): string {
  const size = Math.abs(ms)
  return `${size >= 100 ? ms.toFixed(0) : size >= 1 ? ms.toFixed(1) : ms.toFixed(2)} ms`
}

export function percent(part: number): string {
  return `${(part * 100).toFixed(Math.abs(part) >= 0.001 ? 2 : 3)} %`
}
