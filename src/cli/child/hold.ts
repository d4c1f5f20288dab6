import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { basename } from 'node:path'
import { given } from '../../arguments.ts'
import { inUnits, span } from '../../duration.ts'
import type { Engine, Lease, LockEvent, LocksOptions, LossReason } from '../../index.ts'
import { DeadlineFile } from './deadline-file.ts'
import { assertExecutable } from './executable.ts'
import { EXIT, Failure, usage } from '../exit-codes.ts'
import { wantsTerminal } from './launch.ts'
import { messageOf } from '../output.ts'
import type { Call } from '../session.ts'
import { Interrupted, signalCode } from '../signals.ts'
import { setting, type Setting } from '../settings.ts'
import { marginMs, Supervision, type CommandEnding } from './supervise.ts'
import { timeOf } from '../time.ts'
import type { WaitReport } from '../wait-report.ts'

/** A shorter lease leaves no time to stop a command before it ends. */
const LEAST_TTL_MS = 2000
const DEFAULT_TTL_MS = 30_000

/** What `run` and `elect` have in common: a command under a lease. */
export class Holder {
  readonly argv: readonly string[]
  readonly maxHoldMs: number | undefined
  readonly #ttl: Setting | undefined
  /** Known when the engine is. */
  ttlMs: number
  #graceMs: number
  readonly #stopsInDoubt: boolean
  readonly #onLost: string | undefined
  readonly #label: string | undefined
  readonly #note: string | undefined
  readonly #terminal: boolean
  readonly #call: Call
  #supervision: Supervision | undefined
  waitedMs = 0
  /** Tells people about the wait. */
  wait: WaitReport | undefined
  /** Called when the engine fails an attempt to get the lease, with the cause, and when it answers again, without. */
  onReachability: ((cause: Error | undefined) => void) | undefined
  #reachable = true

  constructor(call: Call) {
    const { line, config } = call
    const { options } = line
    this.#call = call
    const shell = options.text('command')
    if (shell !== undefined && line.argv !== undefined)
      throw usage('-c and -- exclude each other', `ringfence ${line.command.name} NAME -c 'a line for the shell'`)
    this.argv = shell === undefined ? (line.argv ?? []) : ['/bin/sh', '-c', shell]
    if (this.argv.length === 0) {
      const next = `ringfence ${line.command.name} ${line.names[0] ?? 'NAME'} -- ${line.names.slice(1).join(' ') || 'COMMAND'}`
      throw usage('expected -- and then a command', next)
    }
    if (process.platform === 'win32') {
      throw new Failure(
        EXIT.failed,
        'running commands needs process groups and /bin/sh, which Windows has not',
        'use WSL',
      )
    }
    this.#ttl = setting('ttl', options, config)
    this.ttlMs =
      this.#ttl === undefined ? DEFAULT_TTL_MS : timeOf(this.#ttl.text, this.#ttl.source, { minMs: LEAST_TTL_MS })
    const maxHold = options.text('max-hold')
    this.maxHoldMs = maxHold === undefined ? undefined : timeOf(maxHold, '--max-hold', { minMs: 1000 })
    this.#graceMs = this.#graceFor(this.ttlMs)
    const onDoubt = options.text('on-doubt') ?? 'keep'
    if (onDoubt !== 'keep' && onDoubt !== 'stop') {
      const next =
        '--on-doubt stop ends the command at the first renewal that fails; keep lets it go on while the lease is valid'
      throw usage(`--on-doubt: expected keep or stop, got '${onDoubt}'`, next)
    }
    this.#stopsInDoubt = onDoubt === 'stop'
    this.#onLost = options.text('on-lost')
    this.#label = setting('label', options, config)?.text
    this.#note = options.text('note') ?? programName(this.argv[0]!)
    if (options.has('tty') && options.has('no-tty')) throw usage('--tty and --no-tty exclude each other')
    this.#terminal = wantsTerminal(options.has('tty') ? 'always' : options.has('no-tty') ? 'never' : 'auto')
  }

  /** Throws what would keep the command from running when the lease is there. */
  assertRunnable(): void {
    assertExecutable(this.argv[0]!)
    DeadlineFile.assertPossible()
  }

  /** For the locks. */
  locksOptions(engine: Engine): LocksOptions {
    const { limits } = engine
    if (this.#ttl === undefined) {
      // Some engines have narrower bounds: a session of ZooKeeper, of Consul.
      this.ttlMs = Math.min(Math.max(this.ttlMs, limits.minTtlMs ?? 0), limits.maxTtlMs)
      this.#graceMs = this.#graceFor(this.ttlMs)
    }
    assertGranted(this.ttlMs, this.#ttl?.source ?? '--ttl', engine)
    return {
      ttl: this.ttlMs,
      observe: (event) => this.#observe(event),
      ...given({ label: this.#label, note: this.#note, maxHold: this.maxHoldMs }),
    }
  }

  #graceFor(ttlMs: number): number {
    const { line, config } = this.#call
    const holdMs = Math.min(ttlMs, this.maxHoldMs ?? Infinity)
    const grace = setting('grace', line.options, config)
    if (grace === undefined) return holdMs / 6
    const graceMs = timeOf(grace.text, grace.source, { maxMs: ttlMs / 2 })
    if (this.maxHoldMs !== undefined && this.maxHoldMs <= graceMs + marginMs(holdMs)) {
      throw usage(
        `--max-hold: expected more than ${grace.source} (${inUnits(graceMs)}) and ${inUnits(marginMs(holdMs))}, got ${line.options.text('max-hold')}`,
        'the command gets TERM that long before --max-hold is over: give it a longer --max-hold or a shorter --grace',
      )
    }
    return graceMs
  }

  /** Runs the command while the lease is held. Signals go to it from here on. */
  async run(lease: Lease, ttlMs = this.ttlMs): Promise<CommandEnding> {
    const { output, signals } = this.#call
    const supervision = new Supervision(lease, {
      holdMs: Math.min(ttlMs, this.maxHoldMs ?? Infinity),
      graceMs: this.#graceMs,
      terminal: this.#terminal,
      warn: (message) => output.complain(message),
    })
    this.#supervision = supervision
    const env = {
      ...process.env,
      RINGFENCE_RESOURCE: lease.resources.join('\n'),
      RINGFENCE_TOKEN: String(lease.token),
      RINGFENCE_ENGINE: lease.engine,
      RINGFENCE_DEADLINE_FILE: supervision.deadlineFile,
      // That of another lease, if this command runs under two.
      RINGFENCE_PERMIT: 'permit' in lease ? String(lease.permit) : undefined,
    }
    const starts = (): boolean => {
      if (signals.interrupted.aborted) return false
      signals.passTo((signal) => supervision.forward(signal))
      signals.commandHasTerminal = this.#terminal
      return true
    }
    try {
      const ending = await supervision.run({ argv: this.argv, env, owner: lease.owner }, starts)
      signals.interrupted.throwIfAborted()
      return ending
    } catch (error) {
      if (error instanceof Failure || error instanceof Interrupted) throw error
      throw new Failure(EXIT.failed, `the command could not be started: ${messageOf(error)}`, undefined, error)
    } finally {
      signals.passTo(undefined)
      this.#supervision = undefined
    }
  }

  /** The lease was lost and the command is dead: `--on-lost`. */
  async lost(lease: Lease, reason: LossReason): Promise<void> {
    if (this.#onLost === undefined) return
    const { signals, output } = this.#call
    const child = spawn('/bin/sh', ['-c', this.#onLost], {
      stdio: 'inherit',
      env: {
        ...process.env,
        RINGFENCE_RESOURCE: lease.resources.join('\n'),
        RINGFENCE_TOKEN: String(lease.token),
        RINGFENCE_REASON: reason,
      },
    })
    signals.passTo((signal) => void child.kill(signal))
    try {
      const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
      if (code !== 0) output.complain(`--on-lost ended with ${signal ?? code}`)
    } catch (error) {
      output.complain(`--on-lost could not be started: ${messageOf(error)}`)
    } finally {
      signals.passTo(undefined)
    }
  }

  /** Of a lease that was lost. One in doubt was still ours: a renewal that is under way may yet keep it, which people must hear of. */
  async giveBack(lease: Lease, reason: LossReason): Promise<void> {
    try {
      await lease.release()
    } catch (error) {
      if (reason !== 'doubtful') return
      const by = `at the latest ${span(this.ttlMs)} after the engine answers again`
      this.#call.output.complain(`the lease could not be released, so it ends by itself, ${by}: ${messageOf(error)}`)
    }
  }

  #reached(cause: Error | undefined): void {
    const reachable = cause === undefined
    if (this.#reachable === reachable) return
    this.#reachable = reachable
    this.onReachability?.(cause)
  }

  #observe(event: LockEvent): void {
    this.wait?.observe(event)
    if (event.type === 'failed') this.#reached(event.cause)
    else if (event.type === 'granted' || event.type === 'refused') this.#reached(undefined)
    if (event.type === 'granted') this.waitedMs = event.waitedMs
    else if (event.type === 'renewed') this.#supervision?.renewed()
    else if (event.type === 'doubtful') {
      this.#call.output.whisper(`the lease could not be renewed yet: ${event.cause.message}`)
      if (this.#stopsInDoubt) this.#supervision?.doubted()
    } else if (event.type === 'left' && event.cause !== undefined) {
      const { message } = event.cause
      this.#call.output.complain(`--at-least could not be set, so the job is kept for its whole ttl: ${message}`)
    }
  }
}

/** Without its folder. The arguments may hold passwords, and everybody who can read the locks could read them. */
function programName(program: string): string | undefined {
  const name = basename(program).replaceAll(/\p{C}/gu, '?')
  return Array.from(name).slice(0, 100).join('') || undefined
}

/** The parameters of an engine's URL that set how long, and how short, a lease may be. */
const LONGER: Readonly<Record<string, string>> = { redlock: 'maxTtl=5m', zookeeper: 'maxTtl=5m' }
/** What a longer maxTtl costs: until then, leases may exist that a node would not know of. */
const LONGER_SINCE: Readonly<Record<string, string>> = {
  redlock:
    '; nodes that were used with a shorter one sit out for maxTtl and a second first, and until then no lease is granted',
}
const SHORTER: Readonly<Record<string, string>> = { consul: 'sessionTtlMin=5s' }
const SHORTER_IF: Readonly<Record<string, string>> = {
  consul: ', if session_ttl_min of the Consul servers is that short',
}

/** Throws, in the words of the command line, where the engine grants no lease of that time. */
export function assertGranted(ms: number, option: string, { limits, name }: Engine): void {
  const { minTtlMs = 0, maxTtlMs } = limits
  const isTooLong = ms > maxTtlMs
  if (!isTooLong && ms >= minTtlMs) return
  const parameter = (isTooLong ? LONGER : SHORTER)[name]
  const bound = isTooLong ? `at most ${inUnits(maxTtlMs)}` : `at least ${inUnits(minTtlMs)}`
  throw usage(
    `${option}: expected ${bound} on this engine (${name}), got ${inUnits(ms)}`,
    parameter &&
      `add ?${parameter} to the engine’s URL, the same for everyone who uses it${(isTooLong ? LONGER_SINCE : SHORTER_IF)[name] ?? ''}`,
  )
}

/** The exit code that says how the command ended. */
export function codeOf({ code, signal }: { code: number | null; signal: NodeJS.Signals | null }): number {
  return code ?? (signal === null ? EXIT.failed : signalCode(signal))
}
