import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { durationMs } from '../duration.ts'
import type { Engine, Lease, LockEvent, LocksOptions, LossReason } from '../index.ts'
import { assertExecutable } from './executable.ts'
import { EXIT, Failure, usage } from './exit-codes.ts'
import { wantsTerminal } from './launch.ts'
import { messageOf } from './output.ts'
import type { Call } from './session.ts'
import { Interrupted, signalCode } from './signals.ts'
import { Supervision, type Ending } from './supervise.ts'

/** A shorter lease leaves no time to stop a command before it ends. */
const LEAST_TTL_MS = 2000
const DEFAULT_TTL_MS = 30_000

/** What `run` and `elect` have in common: a command under a lease. */
export class Holder {
  readonly argv: readonly string[]
  readonly maxHoldMs: number | undefined
  /** Known when the engine is. */
  ttlMs: number
  #graceMs: number
  readonly #onLost: string | undefined
  readonly #label: string | undefined
  readonly #terminal: boolean
  readonly #call: Call
  #supervision: Supervision | undefined
  waitedMs = 0

  constructor(call: Call) {
    const { line, config } = call
    const { options } = line
    this.#call = call
    this.argv = line.argv ?? []
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
    const ttl = options.text('ttl') ?? config.ttl
    this.ttlMs = ttl === undefined ? DEFAULT_TTL_MS : durationMs(ttl, '--ttl', { minMs: LEAST_TTL_MS })
    this.#graceMs = this.#graceFor(this.ttlMs)
    const maxHold = options.text('max-hold')
    this.maxHoldMs = maxHold === undefined ? undefined : durationMs(maxHold, '--max-hold', { minMs: 1000 })
    this.#onLost = options.text('on-lost')
    this.#label = options.text('label') ?? config.label
    if (options.has('tty') && options.has('no-tty')) throw usage('--tty and --no-tty exclude each other')
    this.#terminal = wantsTerminal(options.has('tty') ? 'always' : options.has('no-tty') ? 'never' : 'auto')
    assertExecutable(this.argv[0]!)
  }

  /** For the locks. */
  locksOptions({ limits }: Engine): LocksOptions {
    const { options } = this.#call.line
    if ((options.text('ttl') ?? this.#call.config.ttl) === undefined) {
      // Some engines have narrower bounds: a session of ZooKeeper, of Consul.
      this.ttlMs = Math.min(Math.max(this.ttlMs, limits.minTtlMs ?? 0), limits.maxTtlMs)
      this.#graceMs = this.#graceFor(this.ttlMs)
    }
    return {
      ttl: this.ttlMs,
      observe: (event) => this.#observe(event),
      ...(this.#label === undefined ? {} : { label: this.#label }),
      ...(this.maxHoldMs === undefined ? {} : { maxHold: this.maxHoldMs }),
    }
  }

  #graceFor(ttlMs: number): number {
    const grace = this.#call.line.options.text('grace') ?? this.#call.config.grace
    return grace === undefined ? ttlMs / 6 : durationMs(grace, '--grace', { maxMs: ttlMs / 2 })
  }

  /** Runs the command while the lease is held. Signals go to it from here on. */
  async run(lease: Lease, ttlMs = this.ttlMs): Promise<Ending> {
    const { output, signals } = this.#call
    const supervision = new Supervision(lease, {
      ttlMs,
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

  #observe(event: LockEvent): void {
    if (event.type === 'granted') this.waitedMs = event.waitedMs
    else if (event.type === 'renewed') this.#supervision?.renewed()
    else if (event.type === 'doubtful') {
      this.#supervision?.doubtful()
      this.#call.output.whisper(`the lease could not be renewed yet: ${event.cause.message}`)
    }
  }
}

/** The exit code that says how the command ended. */
export function codeOf({ code, signal }: { code: number | null; signal: NodeJS.Signals | null }): number {
  return code ?? (signal === null ? EXIT.failed : signalCode(signal))
}
