import { given } from '../../arguments.ts'
import {
  HeldError,
  LeaseLostError,
  WaitTimeoutError,
  type Lease,
  type LeaseInfo,
  type Locks,
  type Run,
  type RunLog,
  type Semaphore,
} from '../../index.ts'
import { EXIT, Failure, inWordsOf, usage } from '../exit-codes.ts'
import { assertGranted, codeOf, Holder } from '../child/hold.ts'
import { span } from '../../duration.ts'
import { messageOf, type Output } from '../output.ts'
import { withLocks, type Call, type Session } from '../session.ts'
import { setting, storeUrl } from '../settings.ts'
import { whoIs } from '../../owner.ts'
import { heldAround, heldBy, leaseOn } from '../who-holds.ts'
import type { CommandEnding } from '../child/supervise.ts'
import { numberOf, timeOf } from '../time.ts'
import { WaitReport } from '../wait-report.ts'

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
        ? await withHistory(call, (history) => runOnce(call, holder, locks, plan, history))
        : await runHeld(call, holder, locks, plan)
    const { lease, ending, exitCode } = outcome
    if (ending?.kind === 'lost' && lease !== undefined) await holder.lost(lease, ending.reason)
    if (output.json) output.object(report(names, holder, outcome), process.stderr)
    return exitCode
  }
  return withLocks(call, work, (engine) => {
    if (plan.kind === 'held' && plan.shared && !engine.guarantees.shared)
      throw usage(`--shared: the ${engine.name} engine has no shared leases`, 'leave it out, or name another engine')
    return holder.locksOptions(engine)
  })
}

/** The number is part of the pool: a call with another one has other permits. */
const PERMITS_NEXT =
  'ringfence run --permits 4 NAME -- COMMAND: at most four at a time, the same number wherever NAME is used'

interface Outcome {
  readonly outcome: 'ended' | 'lost' | 'held' | 'timed out' | 'skipped'
  readonly exitCode: number
  readonly lease?: Lease
  readonly ending?: CommandEnding
  readonly holder?: string | undefined
}

interface OncePlan {
  readonly kind: 'once'
  readonly atLeastMs: number
  /** When it is skipped. */
  readonly exitCode: number
}

interface HeldPlan {
  readonly kind: 'held'
  /** Undefined: forever, but not for an engine that cannot be reached. */
  readonly wait: number | undefined
  readonly shared: boolean
  readonly permits: number | undefined
  /** When the lease was not granted. */
  readonly exitCode: number | undefined
}

function planOf({ line: { options, names }, config }: Call, { maxHoldMs = Infinity }: Holder): OncePlan | HeldPlan {
  if (options.has('once')) {
    for (const other of ['shared', 'permits'])
      if (options.has(other)) throw usage(`--once and --${other} exclude each other: a scheduled job runs once`)
    if (options.has('conflict-exit-code'))
      throw usage('--once and -E exclude each other', '--skip-ok makes a run that was skipped a success')
    if (names.length > 1) throw usage('--once: expected one resource', 'a scheduled job has one name')
    if (options.has('wait')) throw usage('--once and --wait exclude each other: a run that is late is skipped')
    const atLeastMs = timeOf(options.text('at-least') ?? '0ms', '--at-least')
    if (maxHoldMs < atLeastMs) {
      const [hold, least] = [options.text('max-hold'), options.text('at-least')]
      throw usage(
        `--max-hold: expected at least as long as --at-least, which is ${least}, got ${hold}`,
        'give it a longer --max-hold, or a shorter --at-least: a lease that ends before would let the job run again too early',
      )
    }
    return { kind: 'once', atLeastMs, exitCode: options.has('skip-ok') ? EXIT.ok : EXIT.skipped }
  }
  for (const [own, value] of [
    ['at-least', ` ${options.text('at-least')}`],
    ['skip-ok', ''],
  ] as const)
    if (options.has(own))
      throw usage(
        `--${own}: only with --once`,
        `ringfence run --once --${own}${value} ${names[0] ?? 'NAME'} -- COMMAND`,
      )
  if (options.has('store')) throw usage('--store: only with --once', 'a history has the runs of scheduled jobs')
  if (options.has('no-wait') && options.has('wait')) throw usage('--wait and --no-wait exclude each other')
  const permits = options.text('permits')
  if (permits !== undefined && options.has('shared'))
    throw usage('--permits and --shared exclude each other: a permit has one holder')
  if (permits !== undefined && names.length > 1) throw usage('--permits: expected one resource', 'a pool has one name')
  const wait = options.has('no-wait') ? undefined : setting('wait', options, config)
  const exitCode = options.text('conflict-exit-code')
  return {
    kind: 'held',
    wait: options.has('no-wait') ? 0 : wait && timeOf(wait.text, wait.source),
    shared: options.has('shared'),
    permits: permits === undefined ? undefined : numberOf(permits, '--permits', 1, 1000, PERMITS_NEXT),
    exitCode: exitCode === undefined ? undefined : numberOf(exitCode, '-E', 0, 255),
  }
}

async function runHeld(call: Call, holder: Holder, locks: Locks, plan: HeldPlan): Promise<Outcome> {
  let lease: Lease
  try {
    lease = await acquire(call, holder, locks, plan)
  } catch (error) {
    if (!(error instanceof HeldError || error instanceof WaitTimeoutError)) throw error
    const waited = error instanceof WaitTimeoutError
    const around = heldAround(error.holder, call.line.names)
    const lease = error.holder === undefined || around !== undefined ? undefined : await holderOf(call, locks)
    const held = around ?? (lease === undefined ? undefined : heldBy(lease))
    // The owners of a pool's permits are in the error, and their ids are for machines.
    call.output.say(
      held === undefined
        ? error.message.replaceAll(/\b[0-9a-f]{32}@/g, '')
        : `${waited ? `waited ${span(error.waitMs)}: ` : ''}${held}`,
    )
    return {
      outcome: waited ? 'timed out' : 'held',
      exitCode: plan.exitCode ?? (waited ? EXIT.waitTimeout : EXIT.held),
      holder: error.holder,
    }
  }
  try {
    const ending = await holder.run(lease)
    if (ending.kind === 'lost') {
      await holder.giveBack(lease, ending.reason)
      return { outcome: 'lost', exitCode: EXIT.lost, lease, ending }
    }
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

/** Of some permits that are in the way: the one that may be forgotten. */
async function heldLongest({ output }: Call, locks: Locks, permits: readonly string[]): Promise<LeaseInfo | undefined> {
  if (output.quiet) return undefined
  const leases = await Promise.all(permits.map((permit) => leaseOn(locks, permit)))
  return leases
    .filter((lease) => lease !== undefined)
    .reduce<LeaseInfo | undefined>(
      (longest, lease) => ((lease.heldMs ?? 0) > (longest?.heldMs ?? -1) ? lease : longest),
      undefined,
    )
}

/** A lease that was no longer ours when it was given back was lost unnoticed: the command may not have been alone. */
async function released(call: Call, lease: Lease, exitCode: number, ending: CommandEnding): Promise<Outcome> {
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
 * Without a given time it waits forever for a holder. An engine that cannot be reached at the start is reported at once,
 * because the URL may have a typing error.
 */
async function acquire(call: Call, holder: Holder, locks: Locks, plan: HeldPlan): Promise<Lease> {
  const { names } = call.line
  const { shared, permits } = plan
  const signal = call.signals.interrupted
  const pool = permits === undefined ? undefined : poolOf(locks, names[0]!, permits)
  const ask = (wait: number): Promise<Lease> =>
    pool === undefined ? locks.acquire(names, { wait, signal, shared }) : pool.acquire({ wait, signal })
  const what = names.map((name) => `'${name}'`).join(', ')
  holder.wait = new WaitReport(call.output, {
    held: permits === undefined ? `${what} is held` : `all ${permits} permits of ${what} are held`,
    isOneOfMany: permits !== undefined,
    lease: (asked) => (permits === undefined ? holderOf(call, locks) : heldLongest(call, locks, asked)),
  })
  if (plan.wait !== undefined) return ask(plan.wait)
  try {
    return await ask(0)
  } catch (error) {
    if (!(error instanceof HeldError)) throw error
    const around = heldAround(error.holder, names)
    if (around !== undefined) call.output.say(`waiting: ${around}`)
  }
  return ask(Infinity)
}

function poolOf(locks: Locks, name: string, permits: number): Semaphore {
  return inWordsOf({ permits: '--permits', name: 'RESOURCE' }, () => locks.semaphore(name, permits))
}

async function runOnce(
  call: Call,
  holder: Holder,
  locks: Locks,
  { atLeastMs, exitCode: skipped }: OncePlan,
  history: RunLog | undefined,
): Promise<Outcome> {
  let lease: Lease | undefined
  let ending: CommandEnding | undefined
  try {
    const { maxHoldMs } = holder
    assertGranted(Math.max(atLeastMs, holder.ttlMs), '--at-least', locks.engine)
    const runs = history && { recordRun: (run: Run) => history.recordRun(withEnding(run, ending)) }
    const options = { atLeast: atLeastMs, ...given({ atMost: maxHoldMs, runs }) }
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
    const isHeld = other !== undefined && other.offered !== true
    const where = isHeld ? `on ${whoIs(other.owner)} (${runTimes(other)})` : 'elsewhere'
    call.output.say(`skipped: '${call.line.names[0]}' runs, or has just run, ${where}`)
    return { outcome: 'skipped', exitCode: skipped, holder: other?.owner }
  } catch (error) {
    if (lease !== undefined && wasNotExecuted(error)) await giveBack(locks, lease, Math.max(holder.ttlMs, atLeastMs))
    if (!(error instanceof LeaseLostError) || lease === undefined) throw error
    if (error.reason === 'unnoticed') complainOfUnnoticedLoss(call)
    const lost: CommandEnding = ending?.kind === 'lost' ? ending : { kind: 'lost', reason: error.reason }
    return { outcome: 'lost', exitCode: EXIT.lost, lease, ending: lost }
  }
}

/** A command that exits with another code than 0 has failed, though the job that ran it is done. */
function withEnding(run: Run, ending: CommandEnding | undefined): Run {
  if (run.outcome !== 'done' || ending === undefined) return run
  if (ending.kind === 'lost') return { ...run, outcome: 'lost', message: `the lease was lost: ${ending.reason}` }
  const { code, signal } = ending
  if (code === 0) return run
  return { ...run, outcome: 'failed', message: signal === null ? `exit code ${code}` : `ended by ${signal}` }
}

/** With the store that was named, closed whatever happens. One that fails is complained of once, and changes nothing else. */
async function withHistory<T>(
  { line, config, output }: Call,
  work: (history: RunLog | undefined) => Promise<T>,
): Promise<T> {
  const url = storeUrl(line.options, config, output)
  if (url === undefined) return work(undefined)
  const { openStore, storeFailure } = await import('../engines/store.ts')
  const store = await openStore(url)
  let complained = false
  const recordRun = async (run: Run): Promise<void> => {
    try {
      await store.runs.recordRun(run)
    } catch (error) {
      if (!complained) complainOfStore(storeFailure(error, store), output)
      complained = true
    }
  }
  try {
    return await work({ recordRun })
  } finally {
    await store.close()
  }
}

function complainOfStore(failure: unknown, output: Output): void {
  const said = messageOf(failure)
  output.complain(said.startsWith('the run is recorded') ? said : `the run could not be recorded: ${said}`)
  if (failure instanceof Failure && failure.next !== undefined) output.advise(failure.next)
}

function wasNotExecuted(error: unknown): boolean {
  return error instanceof Failure && (error.exitCode === EXIT.notFound || error.exitCode === EXIT.notExecutable)
}

/** Nothing was done, so nothing is done too often: the lease that `once` left for --at-least ends now. */
async function giveBack({ engine }: Locks, { resources, owner, token }: Lease, ttlMs: number): Promise<void> {
  await engine.release({ resources, owner, token, ttlMs, shared: false }).catch(() => undefined)
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
    ...(lease !== undefined && 'permit' in lease ? { permit: lease.permit } : {}),
    holder: more.holder,
  }
}
