import { setImmediate } from 'node:timers/promises'
import { systemClock } from '../../src/clock.ts'
import { Admission } from '../../src/engines/redis/voters/admission.ts'
import type { RedisClient } from '../../src/engines/redis/client.ts'
import { Electorate } from '../../src/engines/redis/voters/electorate.ts'
import { STAMP_KEY } from '../../src/engines/redis/keys.ts'
import { RedisNode } from '../../src/engines/redis/node.ts'
import { Redis, ServerError, type Reply } from '../redis.ts'

/**
 * Letting a node in, in every order of events: two clients with the shipped code and scripts, one node that restarts empty and
 * whose scripts are flushed at any point, commands that are given up and arrive later, in whichever run. Beside it a
 * node that is in use, so that it is known that the quorum is. Time stands still, so after a restart the node may never vote.
 */
export interface AdmissionPlan {
  /** How the node begins: let in, with one client that knows it; or having sat out, to be let in by either. */
  readonly begins: 'let in' | 'has sat out'
  /** Of each client: it learns of a restart or a flush by the next one only. */
  readonly requests: number
  readonly restarts: number
  readonly flushes: number
  /** How often a client gives up waiting for an answer. */
  readonly giveUps: number
  /** Wrong variants change commands on their way. */
  readonly change?: (command: readonly string[]) => readonly string[]
  /** A wrong variant: all epochs are the same. */
  readonly oneEpoch?: boolean
}

export interface AdmissionFound {
  readonly states: number
  /** How many votes the first run gave, over all orders: it may. */
  readonly votes: number
  readonly refusals: number
  /** The first order of events by which a run voted that must not. */
  readonly broken: readonly string[] | undefined
}

const SIT_OUT_MS = 6000
const NOW_MS = 1_700_000_000_000
interface Pending {
  readonly command: readonly string[]
  settle(reply: Reply): void
}

class Server {
  run = 0
  redis = Server.#start(0)
  votes = 0
  wrongVotes = 0

  static #start(run: number): Redis {
    const startedMs = run === 0 ? NOW_MS - 10 * SIT_OUT_MS : NOW_MS
    return new Redis(() => NOW_MS, {}, { runId: `run${run}`, startedMs, persistence: 'none' })
  }

  restart(): void {
    this.run++
    this.redis = Server.#start(this.run)
  }

  execute(command: readonly string[]): Reply {
    const reply = this.redis.run(command)
    const isVote = command[0] === 'EVALSHA' && !(reply instanceof ServerError)
    if (isVote && this.run === 0) this.votes++
    else if (isVote) this.wrongVotes++
    return reply
  }
}

/** One client process: the shipped node and electorate over a line that delivers when it is told to. */
class Client {
  readonly name: string
  readonly line: Pending[] = []
  /** Given up, but on their way: they may arrive at any time, as on the other connections of a pool. */
  readonly strays: Pending[] = []
  /** All that it was told: its state follows from that. */
  readonly told: string[] = []
  refusals = 0
  readonly #waiting = new Set<() => void>()

  constructor(name: string, plan: AdmissionPlan, peer: Redis) {
    this.name = name
    let ids = 0
    const random = { id: () => (plan.oneEpoch === true ? 'epoch' : `${name}${++ids}`), fraction: () => 0 }
    const options = {
      clock: systemClock,
      prefix: '',
      fenceTtlMs: 1e9,
      sitOutMs: SIT_OUT_MS,
      random,
      replicas: { count: 0, withinMs: 0 },
    }
    const node = new RedisNode(this.#client(plan), 'node', options)
    const other = new Admission(
      clientOf(async (command) => answerOf(peer.run(command))),
      '',
      SIT_OUT_MS,
      random,
    )
    const voters = [
      { label: 'node', admission: node.admission! },
      { label: 'peer', admission: other },
    ]
    const rules = { restart: 'auto' as const, sitOutMs: SIT_OUT_MS, clock: systemClock }
    void new Electorate(voters, rules, { timeoutMs: () => 0, inTime: (work) => this.#inTime(work) })
    void this.#requests(node, plan.requests)
  }

  get waits(): boolean {
    return this.#waiting.size > 0
  }

  giveUp(): void {
    this.told.push('gives up')
    this.strays.push(...this.line.splice(0))
    for (const reject of this.#waiting) reject()
    this.#waiting.clear()
  }

  async #requests(node: RedisNode, count: number): Promise<void> {
    for (let number = 0; number < count; number++) {
      const keys = node.keys([`${this.name}${number}`])
      await node.acquire(keys, this.name, 1000, NOW_MS * 1000).catch(() => this.refusals++)
    }
  }

  #client(plan: AdmissionPlan): RedisClient {
    return clientOf(async (command) => {
      // Only reads what never changes here.
      if (command[0] === 'CONFIG') return []
      return new Promise((resolve, reject) => {
        const settle = (reply: Reply): void => {
          this.told.push(JSON.stringify(reply instanceof Error ? reply.message : reply))
          if (reply instanceof ServerError) reject(reply)
          else resolve(reply)
        }
        this.line.push({ command: plan.change?.(command) ?? command, settle })
      })
    })
  }

  #inTime<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => reject(new Error('no answer in time'))
      this.#waiting.add(giveUp)
      work.then(resolve, reject).finally(() => this.#waiting.delete(giveUp))
    })
  }
}

function none(): never {
  throw new Error('not used here')
}

function clientOf(run: RedisClient['run']): RedisClient {
  return {
    driver: 'ioredis',
    identity: {},
    label: 'node',
    cluster: false,
    unusable: () => undefined,
    run,
    runTogether: none,
    masters: none,
    subscriber: none,
  }
}

function answerOf(reply: Reply): Reply {
  if (reply instanceof ServerError) throw reply
  return reply
}

/** One order of events, played from the beginning. */
class Play {
  readonly server = new Server()
  readonly clients: readonly Client[]
  readonly #plan: AdmissionPlan
  readonly #left: { restarts: number; flushes: number; giveUps: number }

  constructor(plan: AdmissionPlan) {
    this.#plan = plan
    this.#left = { restarts: plan.restarts, flushes: plan.flushes, giveUps: plan.giveUps }
    const peer = new Redis(() => NOW_MS)
    peer.run(['HSET', STAMP_KEY, `epoch:${SIT_OUT_MS}`, '0 peer', 'seen', String(NOW_MS), 'durable', '0'])
    const since = ['since.run', 'run0', 'since.ms', String(NOW_MS - SIT_OUT_MS), 'since.level', '1']
    this.server.redis.run(['HSET', STAMP_KEY, ...since])
    this.clients = ['a', 'b'].map((name) => new Client(name, plan, peer))
  }

  /** What may happen next, in words that are the same in every play. */
  moves(): string[] {
    const moves: string[] = []
    for (const { name, line, strays } of this.clients) {
      if (line.length > 0) moves.push(`deliver ${name}`)
      if (strays.length > 0) moves.push(`deliver late ${name}`)
    }
    if (this.#left.restarts > 0) moves.push('restart')
    if (this.#left.flushes > 0) moves.push('flush')
    if (this.#left.giveUps > 0) {
      for (const { name, waits } of this.clients) if (waits) moves.push(`give up ${name}`)
    }
    return moves
  }

  async move(move: string): Promise<void> {
    const [what, name] = move.split(/ (?=\w$)/)
    const client = this.clients.find((one) => one.name === name)
    if (what === 'restart') {
      this.#left.restarts--
      this.server.restart()
    } else if (what === 'flush') {
      this.#left.flushes--
      this.server.redis.flushScripts()
    } else if (what === 'give up') {
      this.#left.giveUps--
      client!.giveUp()
    } else {
      const pending = (what === 'deliver' ? client!.line : client!.strays).shift()!
      pending.settle(this.server.execute(pending.command))
    }
    await this.settled()
  }

  /** The first client has used the node before the rest begins. */
  async begin(): Promise<void> {
    await this.settled()
    if (this.#plan.begins === 'has sat out') return
    const [first] = this.clients
    while (this.server.votes === 0 && first!.line.length > 0) await this.move(`deliver ${first!.name}`)
  }

  /** All that follows from what was delivered has happened. */
  async settled(): Promise<void> {
    await setImmediate()
  }

  /** Plays with the same are the same from here on. */
  state(): string {
    const { redis, run } = this.server
    return JSON.stringify([
      run,
      this.#left,
      [...redis.keys].map(([key, { value }]) => [key, value instanceof Map ? [...value] : value]),
      redis.loaded,
      this.clients.map(({ told, line, strays }) => [told, line, strays]),
    ])
  }
}

export async function exploreAdmission(plan: AdmissionPlan): Promise<AdmissionFound> {
  const seen = new Set<string>()
  const found = { votes: 0, refusals: 0 }
  const open: string[][] = [[]]
  for (let requests = open.pop(); requests !== undefined; requests = open.pop()) {
    const play = new Play(plan)
    await play.begin()
    for (const move of requests) await play.move(move)
    // On with one of the moves; the others are played from the beginning, later.
    for (let state = play.state(); !seen.has(state); state = play.state()) {
      if (play.server.wrongVotes > 0) return { states: seen.size, ...found, broken: requests }
      seen.add(state)
      const [next, ...others] = play.moves()
      for (const move of others) open.push([...requests, move])
      if (next === undefined) {
        found.votes += play.server.votes
        found.refusals += play.clients.reduce((sum, { refusals }) => sum + refusals, 0)
        break
      }
      requests = [...requests, next]
      await play.move(next)
    }
  }
  return { states: seen.size, ...found, broken: undefined }
}

const ALL: readonly AdmissionPlan[] = [
  { begins: 'has sat out', requests: 1, restarts: 1, flushes: 0, giveUps: 0 },
  { begins: 'has sat out', requests: 1, restarts: 2, flushes: 0, giveUps: 1 },
  { begins: 'let in', requests: 2, restarts: 1, flushes: 1, giveUps: 0 },
  { begins: 'let in', requests: 2, restarts: 1, flushes: 1, giveUps: 1 },
]

export const ADMISSIONS: Readonly<Record<string, AdmissionPlan>> = Object.fromEntries(
  ALL.map((plan) => [
    `a node that ${plan.begins === 'let in' ? 'was let in' : plan.begins}, restarts: ${plan.restarts}, flushes: ${plan.flushes}, commands given up: ${plan.giveUps}`,
    plan,
  ]),
)

/** Ways to let a node in that look right and are not; each must be found. */
export const WRONG_ADMISSIONS: Readonly<Record<string, AdmissionPlan>> = {
  'published without a look at the run': {
    ...ALL[0]!,
    change: (command) =>
      command.map((part) => part.replace("if run ~= ARGV[1] then return {'another run', ''} end", '')),
  },
  'an epoch that is loaded again': { ...ALL[2]!, oneEpoch: true },
}
