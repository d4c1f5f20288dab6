import { optionsOrThrow } from '../arguments.ts'
import { durationMs, shown, type Duration } from '../duration.ts'
import type { RedisClient } from '../engines/redis/client.ts'
import { recognise } from '../engines/redis/drivers/recognise.ts'
import { isNoScript, isReply } from '../engines/redis/drivers/server-errors.ts'
import { slotMate } from '../engines/redis/keys.ts'
import { sha1 } from '../engines/redis/sha1.ts'
import { slotOf } from '../engines/redis/slot.ts'
import { resourceName } from '../options.ts'
import { runLimit, shortMessage, type RecordedRun, type Run, type RunsOptions, type RunStore } from '../runs.ts'
import { keepMsOf, keyOrThrow, unknownEffect, type Effect, type EffectOptions } from './effect.ts'
import { fencedOrThrow, GuardContext, StoreGuard, type Fenced, type Guard, type GuardOptions } from './guard.ts'
import { effectIn, onceScript, READ_RUNS, RECORD_RUN, runsIn, runText } from './redis-records.ts'

/** Options of `redisGuard`. */
export interface RedisGuardOptions extends GuardOptions {
  /**
   * Stands before the resource in the key of its fence. Default `ringfence:guard:`. With `once:` behind it, it stands before the key
   * of a record of `once`, and with `runs:` before the keys of a job's runs.
   */
  prefix?: string
}

/** Options of `set` of the guard of Redis. */
export interface SetOptions {
  /** The value is forgotten after this time. Default: never. */
  ttl?: Duration
}

/** Keys and arguments of a Lua script of your own. */
export interface ScriptInput {
  readonly keys?: readonly string[]
  readonly args?: readonly string[]
}

/** What `once` runs: a script, as `run` does. */
export interface ScriptWork extends ScriptInput {
  readonly script: string
}

/**
 * Everything is one script: the fences of the lease are checked and raised, and the keys written, in one step. On a Cluster
 * they must share a hash slot: a fence has that of its resource, so the keys of `account:7` are called `{account:7}:…`.
 */
export interface RedisGuard extends Guard, RunStore {
  set(lease: Fenced, key: string, value: string, options?: SetOptions): Promise<void>
  /** Returns how many of the keys existed. */
  delete(lease: Fenced, ...keys: string[]): Promise<number>
  /**
   * Runs a script of yours after the check, with its own `KEYS` and `ARGV`. What a script has written before it fails stays
   * written, as always in Redis.
   */
  run(lease: Fenced, script: string, input?: ScriptInput): Promise<unknown>
  /**
   * As `run`, and the key, the token and what the script returns are recorded in the same step. A repeat with the same key, by any process, at any time, gets that and does not run the script. What it returns becomes JSON, by `cjson`. A script that fails
   * records nothing, but what it has written before stays written: let it check first, and write last. On a Cluster the key
   * shares the hash slot of the resource: `{account:7}:charge:1`.
   */
  once<T = unknown>(lease: Fenced, key: string, work: ScriptWork, options?: EffectOptions): Promise<Effect<T>>
}

/** A guard for Redis and Valkey. Takes what the Redis engine takes: a client, a Sentinel group or a Cluster. */
export function redisGuard(client: unknown, options: RedisGuardOptions = {}): RedisGuard {
  return new RedisStoreGuard(client, options)
}

const DEFAULT_PREFIX = 'ringfence:guard:'

class RedisStoreGuard extends StoreGuard implements RedisGuard {
  readonly #client: RedisClient
  readonly #prefix: string
  readonly #context: GuardContext

  constructor(client: unknown, options: RedisGuardOptions) {
    const context = new GuardContext('redis', options, ['prefix'])
    super(context)
    this.#context = context
    const { prefix = DEFAULT_PREFIX } = options
    if (typeof prefix !== 'string' || /[{}]/.test(prefix)) {
      throw new TypeError(`prefix: expected a string without braces, got ${shown(prefix)}`)
    }
    this.#prefix = prefix
    this.#client = usable(client)
  }

  async raise(lease: Fenced, from?: string): Promise<void> {
    await this.#run(lease, NOTHING, {}, from)
  }

  async set(lease: Fenced, key: string, value: string, options: SetOptions = {}): Promise<void> {
    const fenced = fencedOrThrow(lease)
    optionsOrThrow(options, ['ttl'])
    const { ttl } = options
    if (typeof value !== 'string') throw new TypeError(`value: expected a string, got ${shown(value)}`)
    const args = ttl === undefined ? [value] : [value, 'px', String(durationMs(ttl, 'ttl', { minMs: 1 }))]
    await this.#run(fenced, SET, { keys: stringsOrThrow([key], 'key'), args })
  }

  async delete(lease: Fenced, ...keys: string[]): Promise<number> {
    if (keys.length === 0)
      throw new TypeError('keys: expected at least one, got none; name the keys that the script writes')
    return Number(await this.#run(fencedOrThrow(lease), DELETE, { keys: stringsOrThrow(keys, 'keys') }))
  }

  async run(lease: Fenced, script: string, input: ScriptInput = {}): Promise<unknown> {
    scriptOrThrow(script)
    optionsOrThrow(input, ['keys', 'args'])
    const [keys, args] = [stringsOrThrow(input.keys ?? [], 'keys'), stringsOrThrow(input.args ?? [], 'args')]
    return this.#run(fencedOrThrow(lease), script, { keys, args })
  }

  async once<T>(lease: Fenced, key: string, work: ScriptWork, options: EffectOptions = {}): Promise<Effect<T>> {
    const fenced = fencedOrThrow(lease)
    keyOrThrow(key)
    if (typeof work !== 'object' || work === null) {
      throw new TypeError(`work: expected { script, keys, args }, which is one step on the server, got ${shown(work)}`)
    }
    const { script } = work
    scriptOrThrow(script)
    optionsOrThrow(options, ['keep'])
    const keys = [`${this.#prefix}once:${key}`, ...stringsOrThrow(work.keys ?? [], 'keys')]
    const call = this.#context.random.id()
    const args = [String(keepMsOf(options) ?? ''), call, ...stringsOrThrow(work.args ?? [], 'args')]
    try {
      return effectIn(await this.#run(fenced, onceScript(script), { keys, args }), key, fenced, call)
    } catch (error) {
      throw isReply(error) || error instanceof TypeError || error instanceof RangeError
        ? error
        : unknownEffect(key, fenced, error)
    }
  }

  async recordRun(run: Run): Promise<void> {
    const text = runText({ ...run, message: shortMessage(run.message) })
    const args = [run.owner, text, String(run.tookMs), run.outcome === 'began' ? '0' : '1']
    await this.#ask(RECORD_RUN, this.#runKeys(run.job), args)
  }

  async runs(job: string, options: RunsOptions = {}): Promise<readonly RecordedRun[]> {
    const [name, limit] = [resourceName(job, 'job'), runLimit(options)]
    return runsIn(name, await this.#ask(READ_RUNS, this.#runKeys(name), [String(limit)]))
  }

  #runKeys(job: string): readonly string[] {
    const tail = slotMate(job)
    return [`${this.#prefix}runs:${tail}`, `${this.#prefix}runs-order:${tail}`]
  }

  async #run(lease: Fenced, script: string, input: ScriptInput = {}, from = ''): Promise<unknown> {
    const { resources, token, engine } = lease
    const { keys = [], args = [] } = input
    assertNotTheLock(keys, lease)
    const allKeys = [...resources.map((resource) => this.#prefix + slotMate(resource)), ...keys]
    if (this.#client.cluster) assertOneSlot(allKeys, lease)
    const rest = [String(allKeys.length), ...allKeys, String(resources.length), String(token), engine, from, ...args]
    const reply = await this.#answered(resources, this.#evaluate(guarded(script), rest, allKeys[0]!))
    const [verdict, ...answer] = Array.isArray(reply) ? reply : [reply]
    if (verdict === 'done') return answer[0] ?? null
    const [index, seen, whose] = answer
    throw this.#context.refusal(lease, resources[Number(index) - 1]!, {
      token: BigInt(String(seen)),
      engine: String(whose),
    })
  }

  /** A script of our own, without a fence. */
  #ask(script: string, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return this.#answered([], this.#evaluate(script, [String(keys.length), ...keys, ...args], keys[0]!))
  }

  #answered(resources: readonly string[], asked: Promise<unknown>): Promise<unknown> {
    return this.#context
      .answered(resources, asked, () => this.#client.trouble?.())
      .catch((error: unknown) => {
        // What a server answers, the script's own error among it, is for the caller.
        const unusable = this.#client.unusable()
        if (unusable === undefined && this.#client.trouble?.() === undefined) throw error
        throw this.#context.failure(resources, error, unusable !== undefined)
      })
  }

  async #evaluate(script: string, rest: readonly string[], key: string): Promise<unknown> {
    const sha = sha1(script)
    try {
      return await this.#client.run(['EVALSHA', sha, ...rest], key)
    } catch (error) {
      if (!isNoScript(error)) throw error
      return this.#client.run(['EVAL', script, ...rest], key)
    }
  }
}

const NOTHING = ''
const SET = `return redis.call('set', KEYS[1], unpack(ARGV))`
const DELETE = `return redis.call('del', unpack(KEYS))`

/**
 * KEYS: the fences, then the script's own. ARGV: how many fences, token, engine, the engine that gives way or '', then the
 * script's own. A fence is '<token> <engine>'. Tokens are compared as text, the longer one first: as numbers Lua would
 * round them above 2^53. On one line, so that line numbers in errors are those of the script behind it.
 */
const CHECK = `
local n, token, engine, from = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
for i = 1, n do
  local fence = redis.call('get', KEYS[i])
  if fence then
    local seen, whose = string.match(fence, '^(%d+) (.+)$')
    if not seen then return redis.error_reply('ERR ' .. KEYS[i] .. ' is not a fence') end
    local newer = #seen > #token or (#seen == #token and seen > token)
    if whose == engine and newer or whose ~= engine and whose ~= from then return {'refused', i, seen, whose} end
  end
end
for i = 1, n do redis.call('set', KEYS[i], token .. ' ' .. engine) end
local keys, args = {}, {}
for i = n + 1, #KEYS do keys[i - n] = KEYS[i] end
for i = 5, #ARGV do args[i - 4] = ARGV[i] end`
  .trim()
  .replace(/\s*\n\s*/g, ' ')

function guarded(script: string): string {
  return `${CHECK} local result = (function(KEYS, ARGV) ${script}
end)(keys, args)
if type(result) == 'table' and result.err then return result end
return {'done', result}`
}

function usable(value: unknown): RedisClient {
  const client = recogniseOrThrow(value)
  const why = client.unusable()
  if (why === undefined) return client
  throw new TypeError(`client: expected a client that can be used, but ${client.label}: ${why}`)
}

function recogniseOrThrow(value: unknown): RedisClient {
  try {
    return recognise(value)
  } catch (error) {
    throw error instanceof TypeError ? new TypeError(`client: ${error.message}`) : error
  }
}

function scriptOrThrow(script: unknown): void {
  if (typeof script === 'string' && !script.startsWith('#!')) return
  throw new TypeError(`script: expected the text of a Lua script without a first line of #!, got ${shown(script)}`)
}

function stringsOrThrow(values: readonly string[], name: string): readonly string[] {
  if (Array.isArray(values) && values.every((value) => typeof value === 'string')) return values
  throw new TypeError(`${name}: expected strings, got ${shown(values)}`)
}

/** On the server that has the lock, too, a write to the lock's own key would end the lock, or keep it taken forever. */
function assertNotTheLock(keys: readonly string[], { resources, engine }: Fenced): void {
  const [, prefix] = /^(?:redis|redlock):(.*)$/s.exec(engine) ?? []
  const taken =
    prefix === undefined
      ? undefined
      : keys.find((key) => resources.includes(key.slice(prefix.length)) && key.startsWith(prefix))
  if (taken === undefined) return
  throw new RangeError(
    `key: expected another one than that of the lock itself, got '${taken}'; the lock of a resource is kept under its name, so ` +
      `give the value a name of its own, such as '{${taken}}:value'`,
  )
}

function assertOneSlot(keys: readonly string[], { resources }: Fenced): void {
  if (new Set(keys.map(slotOf)).size === 1) return
  const first = resources[0]!
  const example =
    resources.length > 1 ? "resources '{bank}:1' and '{bank}:2' and a key '{bank}:log'" : `a key '{${first}}:value'`
  throw new RangeError(
    `keys: on a Redis Cluster a fence and what it protects must share a hash slot; '${first}' goes with ${example}`,
  )
}
