import { shown } from './duration.ts'

export function objectOrThrow(value: unknown, name: string): void {
  if (typeof value === 'object' && value !== null) return
  // Other libraries take a ttl in this place.
  const hint = name === 'options' && typeof value === 'number' ? `; a ttl is { ttl: ${value} }` : ''
  throw new TypeError(`${name}: expected an object, got ${shown(value)}${hint}`)
}

/** Of an object that a user hands in. */
export function methodsOrThrow(value: unknown, name: string, methods: readonly string[]): void {
  objectOrThrow(value, name)
  const missing = methods.filter((method) => typeof Reflect.get(value as object, method) !== 'function')
  if (missing.length > 0)
    throw new TypeError(`${name}: expected an object with ${methods.join(', ')}, got none for ${missing.join(', ')}`)
}

export function signalOrThrow(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  const came =
    signal instanceof AbortController ? 'its AbortController; write { signal: controller.signal }' : shown(signal)
  throw new TypeError(`signal: expected an AbortSignal, got ${came}`)
}

/** Names that other libraries have for our options: redlock, redis-semaphore, Redisson, ShedLock and others. */
const HABITS: Readonly<Record<string, string>> = {
  timeout: 'wait',
  retryCount: 'wait',
  retryDelay: 'wait',
  retryJitter: 'wait',
  retryInterval: 'wait',
  retries: 'wait',
  acquireTimeout: 'wait',
  acquireAttemptsLimit: 'wait',
  waitTime: 'wait',
  duration: 'ttl',
  expiration: 'ttl',
  expiry: 'ttl',
  expires: 'ttl',
  lockTimeout: 'ttl',
  leaseTime: 'ttl',
  lockWatchdogTimeout: 'ttl',
  ttlMs: 'ttl',
  automaticExtensionThreshold: 'renew',
  refreshInterval: 'renew',
  driftFactor: 'drift',
  lockAtLeastFor: 'atLeast',
  lockAtMostFor: 'atMost',
}

const NO_ATTEMPTS = ' (a time: a release wakes waiters, so there are neither attempts nor pauses to set)'
const AT_A_THIRD = ' (true or false: a lease is renewed at a third of its ttl)'

/** How ours differs from what was meant by that name. */
const DIFFERENCES: Readonly<Record<string, string>> = {
  retryCount: NO_ATTEMPTS,
  retryDelay: NO_ATTEMPTS,
  retryJitter: NO_ATTEMPTS,
  retryInterval: NO_ATTEMPTS,
  acquireAttemptsLimit: NO_ATTEMPTS,
  automaticExtensionThreshold: AT_A_THIRD,
  refreshInterval: AT_A_THIRD,
}

const OF_LOCKS_AND_CALLS = 'an option of createLocks and of its calls'
const OF_LOCKS = 'an option of createLocks'

/** Where an option belongs that was given in another place. */
const BELONGS: Readonly<Record<string, string>> = {
  ttl: OF_LOCKS_AND_CALLS,
  renew: OF_LOCKS_AND_CALLS,
  maxHold: OF_LOCKS_AND_CALLS,
  onDoubt: OF_LOCKS_AND_CALLS,
  note: OF_LOCKS_AND_CALLS,
  wait: 'an option of createLocks, acquire, using and tryAcquire; once never waits, and elect waits forever',
  signal: 'an option of acquire, using, tryAcquire and elect',
  reentrant: 'an option of createLocks, acquire, using and tryAcquire',
  shared:
    'an option of acquire, tryAcquire and using; there is one leader and one run of a job, so elect and once do not share',
  label: OF_LOCKS,
  handOver: OF_LOCKS,
  observe: OF_LOCKS,
  atLeast: 'an option of once',
  atMost: 'an option of once',
  runs: 'an option of once',
  prefix: ofEngine('redis(client', 'prefix'),
  drift: ofEngine('redis(client', 'drift'),
  requestTimeout: ofEngine('redis(client', 'requestTimeout'),
  fenceTtl: ofEngine('redis(client', 'fenceTtl'),
  replicas: ofEngine('redis(client', 'replicas'),
  maxTtl: ofEngine('redlock(clients', 'maxTtl'),
  restart: ofEngine('redlock(clients', 'restart'),
}

function ofEngine(factory: string, option: string): string {
  return `an option of the engine, as in ${factory}, { ${option} })`
}

/** An option with a misspelt name would have no effect. */
export function optionsOrThrow(options: object, names: readonly string[]): void {
  objectOrThrow(options, 'options')
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    throw new TypeError(`options: expected ${names.join(', ')}, got ${shown(name)}${optionHint(name, names)}`)
  }
}

function optionHint(name: string, names: readonly string[]): string {
  const ours = Object.hasOwn(HABITS, name) ? HABITS[name]! : name
  const difference = Object.hasOwn(DIFFERENCES, name) ? DIFFERENCES[name]! : ''
  if (names.includes(ours)) return `; did you mean ${ours}?${difference}`
  if (Object.hasOwn(BELONGS, ours)) return `; ${ours} is ${BELONGS[ours]}${difference}`
  const near = closest(name, names)
  return near === undefined ? '' : `; did you mean ${near}?`
}

/** The fields that have a value: an optional property may be absent, but not undefined. */
export function given<T extends object>(fields: T): Given<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Given<T>
}

type Given<T> = { [Name in keyof T]?: Exclude<T[Name], undefined> }

/** What was probably meant: the closest candidate that is at most two letters away. */
export function closest(word: string, candidates: readonly string[]): string | undefined {
  return candidates
    .map((candidate) => ({ candidate, distance: distance(word.toLowerCase(), candidate.toLowerCase()) }))
    .filter(({ distance }) => distance <= 2)
    .sort((some, other) => some.distance - other.distance)[0]?.candidate
}

/** How many letters to add, drop or change. */
function distance(some: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (let i = 1; i <= some.length; i++) {
    const next = [i]
    for (let j = 1; j <= other.length; j++) {
      const change = row[j - 1]! + (some[i - 1] === other[j - 1] ? 0 : 1)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, change))
    }
    row = next
  }
  return row[other.length]!
}
