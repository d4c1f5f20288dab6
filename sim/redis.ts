import { resourceKeys, STAMP_KEY } from '../src/engines/redis/keys.ts'
import { rangeOf, SortedSet } from './sorted-set.ts'
import { programOf, shaOf, type Program } from './lua/programs.ts'
import { luaArray, LuaError, LuaTable, type LuaValue } from './lua/values.ts'
import { argument, fromLua, ServerError, toLua, type Reply } from './replies.ts'

export { ServerError, type Reply }

export interface Entry {
  /** Text, a hash, a sorted set, or a list: the one other type there is, to be in the way. */
  readonly value: string | readonly string[] | ReadonlyMap<string, string> | SortedSet
  /** On the server's own clock; Infinity without an end. */
  readonly expiresMs: number
}

/** What a change left behind; undefined when the key is gone. */
export type Change = (key: string, entry: Entry | undefined) => void

interface Settings {
  readonly runId: string
  /** On its own clock. */
  readonly startedMs: number
  readonly persistence: 'none' | 'everysec' | 'always'
  /** It was a replica before, in this run. */
  readonly isPromoted?: boolean
}

/** What the server refuses: messages to channels (as Redis does for new users), the stamp's key, those of lines, or writes for want of memory. */
export type Denied = 'publish' | 'stamp' | 'line' | 'memory'

/**
 * A model of Redis as far as the engine uses it: strings with expiry, scripts run from their real text, and what a client
 * can ask of a server. A command that is not modelled throws, and is not answered as if it were understood.
 */
export class Redis {
  readonly keys = new Map<string, Entry>()
  readonly #scripts = new Map<string, Program>()
  /** The server's own wall clock, in ms with fractions. */
  readonly #clock: () => number
  readonly #publish: (channel: string, message: string) => number
  readonly #changed: Change
  readonly settings: Settings
  readonly #lua: LuaTable
  readonly denied = new Set<Denied>()
  /** Its scripts are not those that it was given. */
  isAltered = false
  /** A script that has written may go on to write, though there is no memory left. */
  #hasWritten = false

  constructor(
    clock: () => number,
    hooks: { publish?: (channel: string, message: string) => number; changed?: Change } = {},
    settings: Settings = { runId: '0', startedMs: 0, persistence: 'none' },
  ) {
    this.#clock = clock
    this.#publish = hooks.publish ?? (() => 0)
    this.#changed = hooks.changed ?? (() => undefined)
    this.settings = settings
    this.#lua = this.#library()
  }

  /** Runs one command; server errors are answers. */
  run(command: readonly string[]): Reply {
    try {
      return this.#command(command)
    } catch (error) {
      if (error instanceof ServerError) return error
      throw error
    }
  }

  get(key: string): Entry | undefined {
    const entry = this.keys.get(key)
    if (entry === undefined) return undefined
    // Whole milliseconds, and still there in the last one.
    if (Math.floor(this.#clock()) <= entry.expiresMs) return entry
    this.keys.delete(key)
    this.#changed(key, undefined)
    return undefined
  }

  set(key: string, entry: Entry | undefined): void {
    this.#hasWritten = true
    if (entry === undefined) this.keys.delete(key)
    else this.keys.set(key, entry)
    this.#changed(key, entry)
  }

  /** The hashes of its scripts. */
  get loaded(): readonly string[] {
    return [...this.#scripts.keys()]
  }

  flushScripts(): void {
    this.#scripts.clear()
  }

  #command(command: readonly string[]): Reply {
    const [name = '', ...args] = command
    this.#hasWritten = false
    switch (name.toUpperCase()) {
      case 'EVALSHA':
        return this.#evaluate(this.#scripts.get(args[0]!), args)
      case 'EVAL':
        return this.#evaluate(this.#load(args[0]!).program, args)
      case 'SCRIPT':
        return this.#script(args)
      case 'CONFIG': {
        const on = this.settings.persistence === 'none' ? 'no' : 'yes'
        return ['appendonly', on, 'appendfsync', this.settings.persistence, 'no-appendfsync-on-rewrite', 'no']
      }
      case 'ACL':
        return 'OK'
      case 'PING':
        return 'PONG'
      case 'FLUSHALL':
        for (const key of this.keys.keys()) this.set(key, undefined)
        return 'OK'
      default:
        if (TRIED.test(args.join(' '))) return this.#tried(name.toLowerCase(), args[0]!)
        return this.#data(name.toLowerCase(), args)
    }
  }

  /** Whatever is answered, but for a missing right, says to the doctor that it may. */
  #tried(name: string, key: string): Reply {
    this.#refuse(name, key)
    return 0
  }

  #script([verb = '', ...args]: readonly string[]): Reply {
    switch (verb.toUpperCase()) {
      case 'LOAD':
        return this.#load(args[0]!).sha
      case 'EXISTS':
        return args.map((sha) => (this.#scripts.has(sha) ? 1 : 0))
      case 'FLUSH':
        this.flushScripts()
        return 'OK'
      default:
        throw new Error(`not modelled: SCRIPT ${verb}`)
    }
  }

  #load(text: string): { sha: string; program: Program } {
    const loaded = { sha: shaOf(text), program: programOf(text) }
    this.#scripts.set(loaded.sha, loaded.program)
    return loaded
  }

  /** Commands that scripts call too. */
  #data(name: string, args: readonly string[]): Reply {
    const [key = '', value = ''] = args
    this.#refuse(name, key)
    switch (name) {
      case 'get':
        return this.#text(key)
      case 'set':
        return this.#set(key, value, args.slice(2))
      case 'del':
        return this.#delete(key)
      case 'exists':
        return this.get(key) === undefined ? 0 : 1
      case 'pexpire': {
        const ms = wholeNumber(value)
        const entry = this.get(key)
        if (entry === undefined) return 0
        if (ms <= 0) return this.#delete(key)
        this.set(key, { ...entry, expiresMs: Math.floor(this.#clock()) + ms })
        return 1
      }
      case 'pttl': {
        const entry = this.get(key)
        if (entry === undefined) return -2
        return entry.expiresMs === Infinity ? -1 : entry.expiresMs - Math.floor(this.#clock())
      }
      case 'time': {
        const us = Math.round(this.#clock() * 1000)
        return [String(Math.floor(us / 1e6)), String(us % 1e6)]
      }
      case 'info': {
        const formerId = (this.settings.isPromoted === true ? '1' : '0').repeat(40)
        if (key.endsWith('stats')) return '# Commandstats\r\nunexpected_error_replies:0\r\n'
        if (key === 'replication') return `# Replication\r\nrole:master\r\nmaster_replid2:${formerId}\r\n`
        const uptime = Math.floor(this.#clock() / 1000) - Math.floor(this.settings.startedMs / 1000)
        const server = `# Server\r\nrun_id:${this.settings.runId}\r\nuptime_in_seconds:${uptime}\r\n`
        return key === '' ? `${server}# Replication\r\nrole:master\r\n` : server
      }
      case 'role':
        return ['master', 0, []]
      case 'hget':
        return this.#hash(key).get(value) ?? null
      case 'hmget':
        return args.slice(1).map((field) => this.#hash(key).get(field) ?? null)
      case 'hgetall':
        return [...this.#hash(key)].flat()
      case 'hset': {
        const hash = new Map(this.#hash(key))
        const before = hash.size
        for (let at = 1; at < args.length; at += 2) hash.set(args[at]!, args[at + 1]!)
        this.set(key, { value: hash, expiresMs: this.get(key)?.expiresMs ?? Infinity })
        return hash.size - before
      }
      case 'rpush': {
        const list = this.get(key)?.value ?? []
        if (!Array.isArray(list)) throw wrongType()
        this.set(key, { value: [...(list as readonly string[]), value], expiresMs: Infinity })
        return list.length + 1
      }
      // All keys in one page: a cursor says nothing about what is promised.
      case 'scan':
        return ['0', this.#matching(args)]
      case 'zadd':
      case 'zrem':
      case 'zrange':
      case 'zrangebyscore':
      case 'zscore':
        return this.#sorted(name, key, args.slice(1))
      case 'publish':
        return this.#publish(key, value)
      default:
        throw new Error(`not modelled: ${name}`)
    }
  }

  #refuse(name: string, key: string): void {
    if (this.denied.size === 0) return
    if (this.#isDenied(name, key)) {
      throw new ServerError(`NOPERM this user may not use one of the ${name === 'publish' ? 'channels' : 'keys'}`)
    }
    if (this.denied.has('memory') && !this.#hasWritten && GROWING.has(name))
      throw new ServerError("OOM command not allowed when used memory > 'maxmemory'.")
  }

  #isDenied(name: string, key: string): boolean {
    return (this.denied.has('publish') && name === 'publish') || (this.denied.has('stamp') && key === STAMP_KEY)
  }

  #text(key: string): string | null {
    const entry = this.get(key)
    if (entry === undefined) return null
    if (typeof entry.value !== 'string') throw wrongType()
    return entry.value
  }

  #hash(key: string): ReadonlyMap<string, string> {
    const value = this.get(key)?.value ?? new Map<string, string>()
    if (!(value instanceof Map)) throw wrongType()
    return value
  }

  #sorted(name: 'zadd' | 'zrem' | 'zrange' | 'zrangebyscore' | 'zscore', key: string, args: readonly string[]): Reply {
    const entry = this.get(key)
    const set = entry?.value ?? new SortedSet()
    if (!(set instanceof SortedSet)) throw wrongType()
    if (name === 'zrangebyscore') return set.range(rangeOf(args))
    if (name === 'zscore') return set.score(args[0]!)
    if (name === 'zrange') {
      if (args.join(' ') !== '-1 -1 withscores') throw new Error(`not modelled: ZRANGE … ${args.join(' ')}`)
      return set.last()
    }
    const { next, count } = name === 'zadd' ? set.add(args) : set.remove(args)
    if (next === set) return count
    this.set(key, next.size === 0 ? undefined : { value: next, expiresMs: entry?.expiresMs ?? Infinity })
    return count
  }

  #delete(key: string): number {
    if (this.get(key) === undefined) return 0
    this.set(key, undefined)
    return 1
  }

  #set(key: string, value: string, options: readonly string[]): Reply {
    let expiresMs = Infinity
    let ifAbsent = false
    let answerBefore = false
    for (let at = 0; at < options.length; at++) {
      const option = options[at]!.toLowerCase()
      if (option === 'nx') ifAbsent = true
      else if (option === 'get') answerBefore = true
      else if (option === 'px') {
        const ms = wholeNumber(options[++at] ?? '')
        if (ms <= 0) throw new ServerError(`ERR invalid expire time in 'set' command`)
        expiresMs = Math.floor(this.#clock()) + ms
      } else if (option === 'pxat') {
        expiresMs = wholeNumber(options[++at] ?? '')
        if (expiresMs <= 0) throw new ServerError(`ERR invalid expire time in 'set' command`)
      } else throw new Error(`not modelled: SET … ${option}`)
    }
    const before = answerBefore ? this.#text(key) : null
    if (ifAbsent && this.get(key) !== undefined) return before
    this.set(key, { value, expiresMs })
    return answerBefore ? before : 'OK'
  }

  /** What scripts know as `redis`. */
  #library(): LuaTable {
    const call = (args: readonly LuaValue[]): Reply => {
      const [name, ...others] = args.map(argument)
      return this.#data(name!.toLowerCase(), others)
    }
    return new LuaTable([
      [
        'call',
        (...args: LuaValue[]) => {
          try {
            return toLua(call(args), isStatus(args[0]))
          } catch (error) {
            if (error instanceof ServerError) throw new LuaError(error.message)
            throw error
          }
        },
      ],
      [
        'pcall',
        (...args: LuaValue[]) => {
          try {
            return toLua(call(args), isStatus(args[0]))
          } catch (error) {
            if (error instanceof ServerError) return new LuaTable([['err', error.message]])
            throw error
          }
        },
      ],
      ['error_reply', (message: LuaValue) => new LuaTable([['err', message]])],
      [
        'acl_check_cmd',
        (...args: LuaValue[]) => {
          const [name, key = ''] = args.map(argument)
          return !this.#isDenied(name!.toLowerCase(), key) && !(this.denied.has('line') && key.startsWith(LINE_KEYS))
        },
      ],
    ])
  }

  #matching([, match = '', pattern = '']: readonly string[]): readonly string[] {
    // The doctor asks whether it may, and looks at nothing.
    if (match.toUpperCase() === 'COUNT') return []
    if (match.toUpperCase() !== 'MATCH' || !/^[\w:{]+\*$/.test(pattern))
      throw new Error(`not modelled: SCAN … ${pattern}`)
    return [...this.keys.keys()].filter((key) => key.startsWith(pattern.slice(0, -1)) && this.get(key) !== undefined)
  }

  #evaluate(program: Program | undefined, [, count = '0', ...rest]: readonly string[]): Reply {
    if (program === undefined) throw new ServerError('NOSCRIPT No matching script. Please use EVAL.')
    const keys = rest.slice(0, Number(count))
    if (this.denied.has('line') && keys.some((key) => key.startsWith(LINE_KEYS)))
      throw new ServerError('NOPERM No permissions to access a key')
    try {
      const { run } = this.isAltered ? programOf(program.text.replaceAll("'nx', 'px'", "'px'")) : program
      return fromLua(run({ redis: this.#lua, KEYS: luaArray(keys), ARGV: luaArray(rest.slice(keys.length)) }))
    } catch (error) {
      if (error instanceof LuaError) throw new ServerError(error.message.replace(/^(?![A-Z]+ )/, 'ERR '))
      throw error
    }
  }
}

/** What the doctor sends where scripts cannot tell it what it may: wrong on purpose, or for a name that nobody locks. */
const TRIED = /\bNEITHER\b|:never-locked\b/

/** A script is refused as a whole that is given a key that the user may not use. */
const LINE_KEYS = resourceKeys('', '').line.replace(/[{}]*$/, '')

/** Commands that need memory; those that free some, or change a time, do not. */
const GROWING = new Set(['set', 'hset', 'rpush', 'zadd'])

/** As Redis reads one: no fraction, no exponent, no spaces. */
function wholeNumber(text: string): number {
  if (!/^(0|-?[1-9]\d{0,18})$/.test(text)) throw new ServerError('ERR value is not an integer or out of range')
  return Number(text)
}

/** The plain OK of SET is a status: to Lua, a table with a field. */
function isStatus(name: LuaValue): boolean {
  return name === 'set'
}

function wrongType(): ServerError {
  return new ServerError('WRONGTYPE Operation against a key holding the wrong kind of value')
}
