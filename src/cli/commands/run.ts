import { given } from '../../arguments.ts'
import {
  HeldError,
  LeaseLostError,
  WaitTimeoutError,
  type Lease,
  type LeaseInfo,
  type Locks,
  type WaitOptions,
} from '../../index.ts'
import { EXIT, Failure, usage } from '../exit-codes.ts'
import { assertGranted, codeOf, Holder } from '../child/hold.ts'
import { span } from '../../duration.ts'
import { withLocks, type Call, type Session } from '../session.ts'
import { setting } from '../settings.ts'
import { heldAround, heldBy, leaseOn, whoIs } from '../who-holds.ts'
import type { Ending } from '../child/supervise.ts'
import { timeOf } from '../time.ts'

export async function run(call: Call): Promise<number> {
  const { line, output } = call
  const { names } = line
  // The options first: a name that is missing may have been taken for the value of one.
  const holder = new Holder(call)
  const plan = planOf(call, holder)
  if (names.length === 0) throw usage('expected the name of a resource', 'ringfence run NAME -- COMMAND')
  holder.assertRunnable()
  const work = async ({ locks }: Session): Promise<number> => {
    const outcome =
      plan.kind === 'once'
        ? await runOnce(call, holder, locks, plan.atLeastMs)
        : await runHeld(call, holder, locks, plan.options)
    const { lease, ending, exitCode } = outcome
    if (ending?.kind === 'lost' && lease !== undefined) await holder.lost(lease, ending.reason)
    if (output.json) output.object(report(names, holder, outcome), process.stderr)
    return exitCode
  }
  return withLocks(call, work, (engine) => holder.locksOptions(engine))
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

function planOf({ line: { options, names }, config }: Call, { maxHoldMs = Infinity }: Holder): Plan {
  if (options.has('once')) {
    if (names.length > 1) throw usage('--once: expected one resource', 'a scheduled job has one name')
    if (options.has('wait')) throw usage('--once and --wait exclude each other: a run that is late is skipped')
    const atLeastMs = timeOf(options.text('at-least') ?? '0ms', '--at-least')
    if (maxHoldMs < atLeastMs) throw usage('--max-hold: expected at least as long as --at-least')
    return { kind: 'once', atLeastMs }
  }
  if (options.has('at-least')) throw usage('--at-least: only with --once')
  if (options.has('no-wait')) {
    if (options.has('wait')) throw usage('--wait and --no-wait exclude each other')
    return { kind: 'held', options: { wait: 0 } }
  }
  const wait = setting('wait', options, config)
  return { kind: 'held', options: wait === undefined ? undefined : { wait: timeOf(wait.text, wait.source) } }
}

async function runHeld(call: Call, holder: Holder, locks: Locks, options: WaitOptions | undefined): Promise<Outcome> {
  let lease: Lease
  try {
    lease = await acquire(call, locks, options)
  } catch (error) {
    if (!(error instanceof HeldError || error instanceof WaitTimeoutError)) throw error
    const waited = error instanceof WaitTimeoutError
    const around = heldAround(error.holder, call.line.names)
    const lease = error.holder === undefined || around !== undefined ? undefined : await holderOf(call, locks)
    const held = around ?? (lease === undefined ? undefined : heldBy(lease))
    call.output.say(held === undefined ? error.message : `${waited ? `waited ${span(error.waitMs)}: ` : ''}${held}`)
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

/** The lease that is in the way, to tell people of it; undefined where it is gone, or nobody wants to know. */
async function holderOf({ line, output }: Call, locks: Locks): Promise<LeaseInfo | undefined> {
  if (output.quiet) return undefined
  for (const name of line.names) {
    const lease = await leaseOn(locks, name).catch(() => undefined)
    if (lease !== undefined) return lease
  }
  return undefined
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
  complainOfUnnoticedLoss(call)
  return { outcome: 'lost', exitCode: EXIT.lost, lease, ending: { kind: 'lost', reason: 'unnoticed' } }
}

function complainOfUnnoticedLoss({ output }: Call): void {
  output.complain('when the command had ended, the lease was no longer ours: it may not have been alone')
}

/**
 * Without a given time it waits forever for a holder. An engine that can't be reached at the start is reported at once,
 * because the URL may have a typing error.
 */
async function acquire(call: Call, locks: Locks, options: WaitOptions | undefined): Promise<Lease> {
  const { line, output, signals } = call
  const signal = signals.interrupted
  if (options !== undefined) return locks.acquire(line.names, { ...options, signal })
  try {
    return await locks.acquire(line.names, { wait: 0, signal })
  } catch (error) {
    if (!(error instanceof HeldError)) throw error
    const around = heldAround(error.holder, line.names)
    if (around !== undefined) output.say(`waiting: ${around}`)
    const lease = process.stderr.isTTY ? await holderOf(call, locks) : undefined
    if (around === undefined) output.whisper(`waiting: ${lease === undefined ? error.message : heldBy(lease)}`)
  }
  return locks.acquire(line.names, { wait: Infinity, signal })
}

async function runOnce(call: Call, holder: Holder, locks: Locks, atLeastMs: number): Promise<Outcome> {
  let lease: Lease | undefined
  let ending: Ending | undefined
  try {
    const { maxHoldMs } = holder
    assertGranted(Math.max(atLeastMs, holder.ttlMs), '--at-least', locks.engine)
    const options = { atLeast: atLeastMs, ...given({ atMost: maxHoldMs }) }
    const outcome = await locks.once(call.line.names[0]!, options, async (granted) => {
      lease = granted
      ending = await holder.run(granted, Math.max(holder.ttlMs, atLeastMs))
      return ending
    })
    if (outcome.ran) {
      const { value } = outcome
      const exitCode = value.kind === 'lost' ? EXIT.lost : codeOf(value)
      return { outcome: value.kind, exitCode, ending: value, ...given({ lease }) }
    }
    const other = await holderOf(call, locks)
    const where = other === undefined ? 'elsewhere' : `on ${whoIs(other.owner)} (${runTimes(other)})`
    call.output.say(`skipped: '${call.line.names[0]}' runs, or has just run, ${where}`)
    return { outcome: 'skipped', exitCode: EXIT.skipped, holder: other?.owner }
  } catch (error) {
    if (lease !== undefined && wasNotExecuted(error)) await giveBack(locks, lease, Math.max(holder.ttlMs, atLeastMs))
    if (!(error instanceof LeaseLostError) || lease === undefined) throw error
    if (error.reason === 'unnoticed') complainOfUnnoticedLoss(call)
    const lost: Ending = ending?.kind === 'lost' ? ending : { kind: 'lost', reason: error.reason }
    return { outcome: 'lost', exitCode: EXIT.lost, lease, ending: lost }
  }
}

function wasNotExecuted(error: unknown): boolean {
  return error instanceof Failure && (error.exitCode === EXIT.notFound || error.exitCode === EXIT.notExecutable)
}

/** Nothing was done, so nothing is done too often: the lease that `once` left for --at-least ends now. */
async function giveBack({ engine }: Locks, { resources, owner, token }: Lease, ttlMs: number): Promise<void> {
  await engine.release({ resources, owner, token, ttlMs }).catch(() => undefined)
}

/** Whether the job still runs, or is done and its lease left to run out, nobody can tell from here. */
function runTimes({ heldMs, remainingMs }: LeaseInfo): string {
  const began = heldMs === undefined ? '' : `began ${span(heldMs)} ago; `
  return `${began}${remainingMs === undefined ? 'without an end' : `not again for ${span(remainingMs)}, or longer if it still runs`}`
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
    holder: more.holder,
  }
}
