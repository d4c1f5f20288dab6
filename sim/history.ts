import type { Reply } from './redis.ts'

/**
 * What happened, in true time: all that the checkers know. Owners are the engine's own; tokens are plain numbers, since they
 * stay below 2^53.
 */
export type HistoryEvent = { readonly at: number } & (
  | Setup
  /** A request leaves a process; with `again` the driver sends it once more. */
  | ({ readonly kind: 'send'; readonly again: boolean } & Message)
  /**
   * It takes effect on the node, which answers; `late`: on a connection that is broken already, so nobody hears it. `kept`: of
   * a release, how many locks its owner has on the node after it. `remade`: an extension after which its owner has a lock again.
   */
  | ({
      readonly kind: 'exec'
      readonly reply: readonly Reply[]
      readonly late: boolean
      readonly kept: number
      readonly remade?: boolean
    } & Message)
  /** The answer reaches the process. */
  | ({ readonly kind: 'heard' } & Message)
  /** The driver gives it up: its outcome is unknown. */
  | ({ readonly kind: 'dropped' } & Message)
  /** A request is handed to a driver that may send it later, or never. */
  | ({ readonly kind: 'issued' } & Message)
  | { readonly kind: 'fault'; readonly name: string; readonly on: string; readonly text: string; readonly ms: number }
  | { readonly kind: 'healed' }
  /** After the healing everyone has two turns: by the second one nothing is left of what was before. */
  | {
      readonly kind: 'call'
      readonly process: string
      readonly call: number
      readonly resources: readonly string[]
      readonly waitMs: number
      readonly turn: 'any' | 'first' | 'second'
      /** It may be held for a bounded time only. */
      readonly isBounded: boolean
    }
  | { readonly kind: 'return'; readonly process: string; readonly call: number; readonly outcome: string }
  | { readonly kind: 'attempt'; readonly process: string; readonly owner: string }
  /** An acquisition is in its caller's hands, and ours until then unless it is renewed. */
  | ({
      readonly kind: 'holds'
      readonly call: number
      readonly resources: readonly string[]
      readonly untilMs: number
      /** Absent if it is not shared. */
      readonly shared?: true
    } & Holder)
  | ({ readonly kind: 'until'; readonly untilMs: number } & Holder)
  | ({ readonly kind: 'ends'; readonly why: string } & Holder)
  | ({ readonly kind: 'signal' } & Holder)
  /** Of what a lock protects; `base` is what was there, `value` what is there after it, if it was accepted. */
  | ({ readonly kind: 'read' } & Access)
  | ({ readonly kind: 'write' } & Access)
  | { readonly kind: 'pause'; readonly process: string; readonly untilMs: number }
  /** `isOlder`: with an older version of the library. */
  | { readonly kind: 'start'; readonly process: string; readonly isOlder?: true }
  | { readonly kind: 'crash'; readonly process: string }
  /** Its locks begin to close, and are closed; what was handed to the driver by then may still be sent. */
  | { readonly kind: 'closing'; readonly process: string }
  | { readonly kind: 'shut'; readonly process: string; readonly lastId: number }
  /** The job of a call of `once` begins, under a lease of `ttlMs`; nobody else may have the resource before `atLeastMs` are over. */
  | {
      readonly kind: 'once'
      readonly process: string
      readonly owner: string
      readonly resource: string
      readonly atLeastMs: number
      readonly ttlMs: number
    }
  /** What it took is left to run out by itself. `isSet`: the servers have said that they keep it for the rest of its time. */
  | { readonly kind: 'rests'; readonly process: string; readonly owner: string; readonly isSet: boolean }
  /** Others may adopt this lease while its holder goes on. */
  | { readonly kind: 'offered'; readonly process: string; readonly owner: string }
  /** A person is about to end the lease of this owner, whose holder goes on. */
  | { readonly kind: 'forced'; readonly process: string; readonly owner: string }
  /** A lease that was handed off or offered by `former`, and is the holder's now. */
  | ({
      readonly kind: 'adopted'
      readonly resources: readonly string[]
      readonly former: string
      readonly formerToken: number
    } & Holder)
  /** A call inside of the work under a lease: `joined` that lease, got one of its `own`, or was `refused`. */
  | ({
      readonly kind: 'nested'
      readonly outcome: 'joined' | 'own' | 'refused'
      readonly inner: number
      /** Whether the lease around it was held before the call and after it. */
      readonly isHeld: boolean
    } & Holder)
  /** Such a call that had joined the lease is done; `released`: so is the lease, though the call around it is not. */
  | ({ readonly kind: 'unnested'; readonly released: boolean } & Holder)
  /** Work that is to take effect once reached its store; `ran`: the script of the effect has run there. */
  | ({ readonly kind: 'effect'; readonly ran: boolean; readonly keepMs: number } & Effect)
  /** What the caller got: the result of the run that counts, and whether that was its own. */
  | ({ readonly kind: 'told'; readonly ran: boolean; readonly asked: string } & Effect)
  /** What is recorded of a run of `once`. */
  | {
      readonly kind: 'run'
      readonly process: string
      readonly owner: string
      readonly resource: string
      readonly outcome: 'began' | 'done' | 'failed' | 'lost'
    }
  /** What `inspect` has found in the time since then. */
  | {
      readonly kind: 'inspected'
      readonly process: string
      readonly fromMs: number
      readonly resources: readonly string[]
      readonly owners: readonly string[]
    }
  /** A call of the guard of objects has returned what it wrote. */
  | ({ readonly kind: 'counted'; readonly resource: string; readonly value: number } & Holder & OfObjects)
  /** No node has a trace of having been in use; and one has again. */
  | { readonly kind: 'blank' }
  | { readonly kind: 'stamped' }
  /** Told by a scenario's own actors. */
  | { readonly kind: 'note'; readonly process: string; readonly text: string }
  | {
      readonly kind: 'closed'
      readonly process: string
      readonly timers: number
      readonly subscriptions: number
      readonly pending: number
    }
  | {
      readonly kind: 'left'
      readonly node: string
      readonly key: string
      readonly value: string
      readonly leftMs: number
    }
)

/** What the run was set up with, as far as a promise depends on it. */
interface Setup {
  readonly kind: 'setup'
  readonly engine: string
  readonly nodes: number
  readonly resources: readonly string[]
  readonly ttlMs: number
  readonly maxTtlMs: number
  readonly drift: number
  readonly sitOutMs: number
  readonly faultless: boolean
  /** What two round trips take at most; an acquisition that nobody is in the way of needs no longer. */
  readonly quickMs: number
  /**
   * A call that waits ends at most this much after its time; one that does not wait, after it has been tried as often as it may be, each
   * time with the time of a server that is silent.
   */
  readonly lateMs: number
  /** How far the wall clocks of the nodes are apart at most, in ms, before any fault. */
  readonly nodesApartMs: number
  /** Beyond the allowance, if a machine's clock is too fast or too slow. */
  readonly drifting: boolean
  /** A node that the last part leaves frozen. */
  readonly leftFrozen: boolean
  readonly restart: 'auto' | 'strict' | 'trust'
  /** How the clients differ in what all must have alike; empty if they do not. */
  readonly unlike: string
  /** How many permits the semaphore has, as those know who know of the most; 0 if there is none. */
  readonly permits: number
}

interface Message {
  readonly id: number
  readonly process: string
  readonly node: string
  readonly what: string
  readonly owner: string
  /** Whose lease is handed over to the owner. */
  readonly former: string
}

interface Access extends Holder {
  readonly store: 'guarded' | 'unguarded' | 'objects'
  readonly resource: string
  readonly base: number
  readonly value: number
  readonly accepted: boolean
  /** Of objects: the call of the guard that it is a part of. */
  readonly call?: number
}

interface OfObjects {
  readonly store: 'objects'
  readonly call: number
}

interface Effect {
  readonly process: string
  readonly resource: string
  readonly key: string
  readonly token: number
  /** What the script returned, or its record has. */
  readonly value: string
}

interface Holder {
  readonly process: string
  readonly owner: string
  readonly token: number
}

export type EventOf<K extends HistoryEvent['kind']> = Extract<HistoryEvent, { kind: K }>

export class History {
  readonly events: HistoryEvent[] = []
  readonly #byKind = new Map<string, HistoryEvent[]>()

  add(event: HistoryEvent): void {
    this.events.push(event)
    const alike = this.#byKind.get(event.kind)
    if (alike === undefined) this.#byKind.set(event.kind, [event])
    else alike.push(event)
  }

  /** The events of some kinds, in their order. */
  of<K extends HistoryEvent['kind']>(...kinds: K[]): readonly EventOf<K>[] {
    if (kinds.length === 1) return (this.#byKind.get(kinds[0]!) ?? []) as EventOf<K>[]
    return this.events.filter((event): event is EventOf<K> => (kinds as string[]).includes(event.kind))
  }

  get setup(): Setup {
    return this.of('setup')[0]!
  }

  /** One line an event: the same for the same seed and commit, byte for byte. */
  text(): string {
    return this.events.map((event) => `${JSON.stringify(event, plain)}\n`).join('')
  }
}

function plain(_key: string, value: unknown): unknown {
  if (value instanceof Error) return `-${value.message}`
  return value === Infinity ? 'never' : value
}

export type Verdict =
  | { readonly checker: string; readonly verdict: 'true' }
  /** `why` says what was seen, or which assumption was broken before. */
  | { readonly checker: string; readonly verdict: 'unknown'; readonly why: string }
  | {
      readonly checker: string
      readonly verdict: 'false'
      readonly why: string
      readonly at: number
      readonly owners: readonly string[]
    }
