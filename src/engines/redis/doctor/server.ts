import type { Clock } from '../../../clock.ts'
import { messageOf as messageOfAny } from '../../../errors.ts'
import type { Random } from '../../../random.ts'
import { findings, type Findings } from '../../shared/findings.ts'
import type { RedisClient, RedisMaster } from '../client.ts'
import type { NodeStanding } from '../voters/electorate.ts'
import { noAnswer } from '../errors.ts'

/** What the doctor gets. Everything it sends only reads, so that a command which runs late does no harm. */
export interface RedisCheckPlan {
  readonly clients: readonly RedisClient[]
  readonly clock: Clock
  readonly random: Random
  readonly ttlMs: number
  /** How much of the ttl clocks may eat up. */
  readonly driftMs: number
  readonly restart: 'auto' | 'strict' | 'trust'
  /** Which nodes may vote, where not all do at all times. */
  readonly standings?: readonly NodeStanding[]
  readonly sitOutMs?: number
  /** Of the lock keys. Default none. */
  readonly prefix?: string
  /** How many replicas must acknowledge. Default 0. */
  readonly replicas?: number
}

export type ServerReply =
  | { readonly kind: 'reply'; readonly value: unknown }
  | { readonly kind: 'error'; readonly message: string }

/** As long as the engine waits for the slowest node; a new connection may have to be made in it. */
export const ANSWER_MS = 2000
/** For all questions to one server: a healthy one a continent away needs about 5 s. */
const CHECK_MS = 20_000

/** The server has not answered in time, so that asking it further makes no sense. */
export class UnansweredError extends Error {}

/** One server: of a plain client the only one, of a Cluster client one of its masters. */
export class CheckedServer {
  readonly label: string
  /** Which of the plan's clients reaches it. */
  readonly member: number
  readonly client: RedisClient
  readonly clock: Clock
  readonly random: Random
  /** Writes findings about this server. */
  readonly report: Findings
  readonly #run: RedisMaster['run']
  readonly #endMs: number

  constructor(plan: RedisCheckPlan, member: number, label: string, master: RedisMaster) {
    const { clock, random } = plan
    this.client = plan.clients[member]!
    this.member = member
    this.label = label
    this.clock = clock
    this.random = random
    this.report = findings('redis', label)
    this.#run = (command) => master.run(command)
    this.#endMs = clock.monotonicMs() + CHECK_MS
  }

  /** Rejects with `UnansweredError` alone; what the server or the connection refuses is a reply too. */
  ask(...command: readonly string[]): Promise<ServerReply> {
    return this.bounded(() => this.#run(command))
  }

  /** Rejects with what is refused, too. */
  async run(command: readonly string[]): Promise<unknown> {
    const reply = await this.ask(...command)
    if (reply.kind === 'error') throw new Error(reply.message)
    return reply.value
  }

  async bounded(work: () => Promise<unknown>): Promise<ServerReply> {
    const leftMs = this.#endMs - this.clock.monotonicMs()
    if (leftMs <= 0) throw new UnansweredError(`not done with all questions within ${CHECK_MS} ms`)
    return within(this.client, this.clock, Math.min(ANSWER_MS, leftMs), work)
  }
}

/**
 * Settles in time in any case: a driver may hang, throw at once, or reject much later. Unlike the shared `inTime`, its timer
 * keeps the process alive: a client that is not connected would not.
 */
export function within(
  client: RedisClient,
  clock: Clock,
  limitMs: number,
  work: () => Promise<unknown>,
): Promise<ServerReply> {
  return new Promise((resolve, reject) => {
    const timer = clock.timer(() => reject(new UnansweredError(noAnswer(limitMs, client).message)), limitMs)
    const settle = (reply: ServerReply): void => {
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
  return messageOfAny(error).replace(/,? with args beginning with:.*$/s, '')
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
