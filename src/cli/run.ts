import { durationMs } from '../duration.ts'
import { HeldError, LeaseLostError, WaitTimeoutError, type Lease, type Locks, type WaitOptions } from '../index.ts'
import { EXIT, usage } from './exit-codes.ts'
import { codeOf, Holder } from './hold.ts'
import { span } from './output.ts'
import { withLocks, type Call } from './session.ts'
import type { Ending } from './supervise.ts'

export async function run(call: Call): Promise<number> {
  const { line, output } = call
  const { names } = line
  const holder = new Holder(call)
  if (names.length === 0) throw usage('expected the name of a resource', 'ringfence run NAME -- COMMAND')
  const plan = planOf(call)
  return withLocks(
    call,
    (engine) => holder.locksOptions(engine),
    async ({ locks }) => {
      const outcome =
        plan.kind === 'once'
          ? await runOnce(call, holder, locks, plan.atLeastMs)
          : await runHeld(call, holder, locks, plan.options)
      const { lease, ending, exitCode } = outcome
      if (ending?.kind === 'lost' && lease !== undefined) await holder.lost(lease, ending.reason)
      if (output.json) output.object(report(names, holder, outcome), process.stderr)
      return exitCode
    },
  )
}

interface Outcome {
  readonly outcome: 'ended' | 'lost' | 'held' | 'timed out' | 'skipped'
  readonly exitCode: number
  readonly lease?: Lease
  readonly ending?: Ending
  readonly holder?: string | undefined
}

type Plan =
  | { readonly kind: 'once'; readonly atLeastMs: number }
  | { readonly kind: 'held'; readonly options: WaitOptions | undefined }

function planOf({ line: { options, names }, config }: Call): Plan {
  if (options.has('once')) {
    if (names.length > 1) throw usage('--once: expected one resource', 'a scheduled job has one name')
    if (options.has('wait')) throw usage('--once and --wait exclude each other: a run that is late is skipped')
    return { kind: 'once', atLeastMs: durationMs(options.text('at-least') ?? 0, '--at-least') }
  }
  if (options.has('at-least')) throw usage('--at-least: only with --once')
  if (options.has('no-wait')) {
    if (options.has('wait')) throw usage('--wait and --no-wait exclude each other')
    return { kind: 'held', options: { wait: 0 } }
  }
  const wait = options.text('wait') ?? config.wait
  return { kind: 'held', options: wait === undefined ? undefined : { wait: durationMs(wait, '--wait') } }
}

async function runHeld(call: Call, holder: Holder, locks: Locks, options: WaitOptions | undefined): Promise<Outcome> {
  let lease: Lease
  try {
    lease = await acquire(call, locks, options)
  } catch (error) {
    if (!(error instanceof HeldError || error instanceof WaitTimeoutError)) throw error
    call.output.say(error.message)
    const waited = error instanceof WaitTimeoutError
    return {
      outcome: waited ? 'timed out' : 'held',
      exitCode: waited ? EXIT.waitTimeout : EXIT.held,
      holder: error.holder,
    }
  }
  try {
    const ending = await holder.run(lease)
    if (ending.kind === 'lost') return { outcome: 'lost', exitCode: EXIT.lost, lease, ending }
    return await released(call, lease, codeOf(ending), ending)
  } finally {
    await lease.release().catch(() => undefined)
  }
}

/** A lease that was no longer ours when it was given back was lost unnoticed: the command may not have been alone. */
async function released(call: Call, lease: Lease, exitCode: number, ending: Ending): Promise<Outcome> {
  const remainingMs = lease.remaining()
  try {
    if (await lease.release()) return { outcome: 'ended', exitCode, lease, ending }
  } catch (error) {
    const detail = error instanceof Error ? `: ${error.message}` : ''
    call.output.complain(`the lease could not be released, so it ends by itself within ${span(remainingMs)}${detail}`)
    return { outcome: 'ended', exitCode, lease, ending }
  }
  call.output.complain('when the command had ended, the lease was no longer ours: it may not have been alone')
  return { outcome: 'lost', exitCode: EXIT.lost, lease, ending: { kind: 'lost', reason: 'stolen' } }
}

/**
 * Without a time given: for ever, but an engine that can't be reached at the start is told at once. Somebody who waits for a
 * holder wants that; somebody with a typing error in the URL does not.
 */
async function acquire(
  { line, output, signals }: Call,
  locks: Locks,
  options: WaitOptions | undefined,
): Promise<Lease> {
  const signal = signals.interrupted
  if (options !== undefined) return locks.acquire(line.names, { ...options, signal })
  try {
    return await locks.acquire(line.names, { wait: 0, signal })
  } catch (error) {
    if (!(error instanceof HeldError)) throw error
    output.whisper(`waiting: ${error.message}`)
  }
  return locks.acquire(line.names, { wait: Infinity, signal })
}

async function runOnce(call: Call, holder: Holder, locks: Locks, atLeastMs: number): Promise<Outcome> {
  let lease: Lease | undefined
  let ending: Ending | undefined
  try {
    const { maxHoldMs } = holder
    const options = { atLeast: atLeastMs, ...(maxHoldMs === undefined ? {} : { atMost: maxHoldMs }) }
    const outcome = await locks.once(call.line.names[0]!, options, async (granted) => {
      lease = granted
      ending = await holder.run(granted, Math.max(holder.ttlMs, atLeastMs))
      return ending
    })
    if (outcome.ran) {
      const { value } = outcome
      const exitCode = value.kind === 'lost' ? EXIT.lost : codeOf(value)
      return { outcome: value.kind, exitCode, ending: value, ...(lease === undefined ? {} : { lease }) }
    }
    call.output.say(`skipped: '${call.line.names[0]}' runs, or has just run, elsewhere`)
    return { outcome: 'skipped', exitCode: EXIT.skipped }
  } catch (error) {
    if (!(error instanceof LeaseLostError) || lease === undefined) throw error
    const lost: Ending = ending?.kind === 'lost' ? ending : { kind: 'lost', reason: error.reason }
    return { outcome: 'lost', exitCode: EXIT.lost, lease, ending: lost }
  }
}

function report(
  names: readonly string[],
  holder: Holder,
  { outcome, exitCode, lease, ending, ...more }: Outcome,
): object {
  return {
    resources: names,
    outcome,
    exitCode,
    ...(ending?.kind === 'ended' && ending.signal !== null ? { signal: ending.signal } : {}),
    ...(ending?.kind === 'lost' ? { reason: ending.reason } : {}),
    ...(lease === undefined
      ? {}
      : { token: lease.token, owner: lease.owner, engine: lease.engine, waitedMs: Math.round(holder.waitedMs) }),
    ...(more.holder === undefined ? {} : { holder: more.holder }),
  }
}
