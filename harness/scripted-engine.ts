import type { Clock } from '../src/clock.ts'
import type {
  Engine,
  EngineLimits,
  Extension,
  Finding,
  Grant,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  QueuedGrant,
  Refusal,
  Release,
  Watch,
} from '../src/engine.ts'
import { memory } from '../src/engines/memory.ts'

/** Does what the test says with a call; `pass` does what an engine in order would do. */
type Step<Call, Answer> = (call: Call, pass: () => Promise<Answer>) => Answer | Promise<Answer>

export interface Script {
  readonly acquire: Step<LeaseRequest, Grant | Refusal>[]
  readonly extend: Step<readonly LeaseRef[], readonly Extension[]>[]
  readonly release: Step<LeaseRef, Release>[]
  readonly handOver: Step<{ lease: LeaseRef; next: LeaseRequest }, Grant | Refusal>[]
}

/** What was asked of the engine, in order. */
export type Call =
  | { readonly op: 'acquire'; readonly request: LeaseRequest }
  | { readonly op: 'extend'; readonly leases: readonly LeaseRef[] }
  | { readonly op: 'release'; readonly lease: LeaseRef }
  | { readonly op: 'handOver'; readonly lease: LeaseRef; readonly next: LeaseRequest }
  | { readonly op: 'watch' | 'unwatch'; readonly resources: readonly string[] }
  | { readonly op: 'enqueue'; readonly request: LeaseRequest }
  | { readonly op: 'close' }

export interface ScriptedOptions {
  readonly driftMs?: (ttlMs: number) => number
  readonly maxTtlMs?: number
  /** What a watch answers when it is asked whether it is armed; without it, the memory engine's. */
  readonly armed?: () => Promise<boolean>
  readonly handOver?: boolean
  readonly leave?: NonNullable<Engine['leave']>
  readonly watch?: boolean
  readonly enqueue?: (request: LeaseRequest, signal: AbortSignal) => Promise<QueuedGrant>
}

/**
 * An engine in memory whose next answers can be scripted: each call takes the next step of its kind, and is passed on
 * to the memory engine when there is none. It stands for the contract of an engine, not for any server.
 */
export class ScriptedEngine implements Engine {
  readonly name = 'scripted'
  readonly limits: EngineLimits
  readonly next: Script = { acquire: [], extend: [], release: [], handOver: [] }
  readonly calls: Call[] = []
  /** The leases that there are. */
  readonly inner: Engine
  readonly handOver?: NonNullable<Engine['handOver']>
  readonly leave?: NonNullable<Engine['leave']>
  readonly watch?: NonNullable<Engine['watch']>
  readonly enqueue?: NonNullable<Engine['enqueue']>
  closed = false
  readonly #doubts: (() => void)[] = []

  constructor(clock: Clock, options: ScriptedOptions = {}) {
    this.inner = memory({ clock })
    this.limits = {
      maxTtlMs: options.maxTtlMs ?? Number.MAX_SAFE_INTEGER,
      driftMs: options.driftMs ?? (() => 0),
    }
    if (options.handOver !== false) this.handOver = (lease, next) => this.#handOver(lease, next)
    if (options.watch !== false) this.watch = (resources, freed) => this.#watch(resources, freed, options.armed)
    const { enqueue, leave } = options
    if (leave !== undefined) this.leave = leave
    if (enqueue !== undefined) {
      this.enqueue = (request, signal) => {
        this.calls.push({ op: 'enqueue', request })
        return enqueue(request, signal)
      }
    }
  }

  get identity(): string {
    return this.inner.identity
  }

  get guarantees(): Engine['guarantees'] {
    return this.inner.guarantees
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    this.calls.push({ op: 'acquire', request })
    return take(this.next.acquire, request, () => this.inner.acquire(request))
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    this.calls.push({ op: 'extend', leases })
    return take(this.next.extend, leases, () => this.inner.extend(leases))
  }

  async release(lease: LeaseRef): Promise<Release> {
    this.calls.push({ op: 'release', lease })
    return take(this.next.release, lease, () => this.inner.release(lease))
  }

  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    return this.inner.inspect(resource)
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return this.inner.check(ttlMs)
  }

  async close(): Promise<void> {
    this.calls.push({ op: 'close' })
    this.closed = true
    await this.inner.close()
  }

  onDoubt(prove: () => void): void {
    this.#doubts.push(prove)
  }

  /** As an engine does whose connection is gone. */
  doubt(): void {
    for (const prove of this.#doubts) prove()
  }

  count(op: Call['op']): number {
    return this.calls.filter((call) => call.op === op).length
  }

  /** The operations asked for so far. */
  get ops(): Call['op'][] {
    return this.calls.map(({ op }) => op)
  }

  async #handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    this.calls.push({ op: 'handOver', lease, next })
    return take(this.next.handOver, { lease, next }, () => this.inner.handOver!(lease, next))
  }

  #watch(resources: readonly string[], freed: () => void, armed?: () => Promise<boolean>): Watch {
    this.calls.push({ op: 'watch', resources })
    const watch = this.inner.watch!(resources, freed)
    const close = (): void => {
      this.calls.push({ op: 'unwatch', resources })
      watch.close()
    }
    return { armed: armed === undefined ? watch.armed : armed(), close }
  }
}

async function take<Call, Answer>(
  steps: Step<Call, Answer>[],
  call: Call,
  pass: () => Promise<Answer>,
): Promise<Answer> {
  const step = steps.shift()
  return step === undefined ? pass() : step(call, pass)
}

/** A step that waits until the test lets it go on. */
export class Gate {
  readonly opened: Promise<void>
  #open!: () => void

  constructor() {
    this.opened = new Promise((resolve) => {
      this.#open = resolve
    })
  }

  open(): void {
    this.#open()
  }
}

/** Every lease of the call is in doubt. */
export function unknown(message: string): (leases: readonly LeaseRef[]) => readonly Extension[] {
  return (leases) => leases.map(() => ({ kind: 'unknown', cause: new Error(message) }))
}

/** Every lease of the call is gone. */
export function lost(leases: readonly LeaseRef[]): readonly Extension[] {
  return leases.map(() => ({ kind: 'lost' }))
}

/** Rejects, as an engine does when it could not do what was asked. */
export function fails(error: Error): () => never {
  return () => {
    throw error
  }
}
