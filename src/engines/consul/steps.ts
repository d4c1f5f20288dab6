import { given } from '../../arguments.ts'
import { base64 } from '../shared/http/text.ts'
import { type ConsulClient, type ConsulEntry, type ConsulOperation } from './client.ts'
import type { ConsulPlan } from './engine.ts'
import { keyOf, parseValue, valueText, type ConsulValue } from './keys.ts'

/** A session and the keys that it locks, step by step. */
export class ConsulSteps {
  readonly #plan: ConsulPlan
  readonly #client: ConsulClient

  constructor(plan: ConsulPlan) {
    this.#plan = plan
    this.#client = plan.client
  }

  key(resource: string): string {
    return keyOf(this.#plan.prefix, resource)
  }

  read(resources: readonly string[], timeoutMs: number): Promise<(ConsulEntry | undefined)[]> {
    return Promise.all(resources.map((resource) => this.#client.read(this.key(resource), timeoutMs)))
  }

  createSession(owner: string, ttlMs: number, timeoutMs: number): Promise<string> {
    const { node, lockDelayMs } = this.#plan
    return this.#client.createSession(
      {
        Name: owner,
        TTL: `${ttlMs}ms`,
        Behavior: 'delete',
        LockDelay: `${lockDelayMs(ttlMs)}ms`,
        // Without the health of the agent's node, which says nothing about us: a holder proves by renewals that it lives.
        Checks: [],
        NodeChecks: [],
        ...given({ Node: node }),
      },
      timeoutMs,
    )
  }

  /** Locks all of the resources or none. Returns the token, or undefined if one of them is taken. */
  async take(
    resources: readonly string[],
    session: string,
    value: ConsulValue,
    timeoutMs: number,
  ): Promise<bigint | undefined> {
    const text = base64(valueText(value))
    // Only a key that this very transaction creates has a create index that is a token.
    const operations = resources.flatMap((resource) => [
      operation('check-not-exists', this.key(resource)),
      operation('lock', this.key(resource), { Value: text, Session: session }),
    ])
    const { done, entries } = await this.#client.transact(operations, timeoutMs)
    return done ? entries[0]!.createIndex : undefined
  }

  /** Makes the keys of a session another one's, all or none, with a new token. Returns undefined if one was not that session's. */
  async replace(
    own: readonly ConsulEntry[],
    session: string,
    value: ConsulValue,
    timeoutMs: number,
  ): Promise<bigint | undefined> {
    const text = base64(valueText(value))
    // Only a key that this very transaction creates has a create index that is a token.
    const operations = own.flatMap(({ key, session: old }) => [
      operation('check-session', key, { Session: old! }),
      operation('delete', key),
      operation('lock', key, { Value: text, Session: session }),
    ])
    const { done, entries } = await this.#client.transact(operations, timeoutMs)
    return done ? entries.at(-1)!.createIndex : undefined
  }

  /** Moves the keys to another session, all or none. That keeps their create index. */
  async move(own: readonly ConsulEntry[], session: string, value: ConsulValue, timeoutMs: number): Promise<boolean> {
    const text = base64(valueText(value))
    const operations = own.flatMap((entry) => [
      operation('unlock', entry.key, { Value: text, Session: entry.session! }),
      operation('lock', entry.key, { Value: text, Session: session }),
    ])
    return (await this.#client.transact(operations, timeoutMs)).done
  }

  /** Deletes the keys if the session has locked all of them. A key that ends with its session would have a lock-delay. */
  async free(keys: readonly string[], session: string, timeoutMs: number): Promise<boolean> {
    const operations = keys.flatMap((key) => [
      operation('check-session', key, { Session: session }),
      operation('delete', key),
    ])
    return (await this.#client.transact(operations, timeoutMs)).done
  }
}

function operation(verb: string, key: string, more: Record<string, string> = {}): ConsulOperation {
  return { KV: { Verb: verb, Key: key, ...more } }
}

export function isOf({ value, session }: ConsulEntry, owner: string): boolean {
  return session !== undefined && parseValue(value)?.owner === owner
}

/** Returns the entries if one session has locked all of them for the owner. */
export function ownEntries(found: readonly (ConsulEntry | undefined)[], owner: string): ConsulEntry[] | undefined {
  const own = found.filter((entry) => entry !== undefined && isOf(entry, owner)) as ConsulEntry[]
  if (own.length < found.length || own.some(({ session }) => session !== own[0]!.session)) return undefined
  return own
}
