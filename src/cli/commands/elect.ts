import { LeaseLostError, type Lease } from '../../index.ts'
import { EXIT, usage } from '../exit-codes.ts'
import { codeOf, Holder } from '../child/hold.ts'
import { WaitReport } from '../wait-report.ts'
import { leaseOn } from '../who-holds.ts'
import { reasonOf, withLocks, type Call, type Session } from '../session.ts'

/** Runs the command whenever we lead; ends when the command ends by itself while leading. */
export async function elect(call: Call): Promise<number> {
  const { line, output, signals } = call
  const holder = new Holder(call)
  const [name, ...others] = line.names
  if (name === undefined || others.length > 0) throw usage('expected one name', 'ringfence elect NAME -- COMMAND')
  holder.assertRunnable()
  const work = async ({ locks, url }: Session): Promise<number> => {
    holder.wait = new WaitReport(call.output, { held: `'${name}' is held`, lease: () => leaseOn(locks, name) })
    holder.onReachability = (cause) => reachability(call, name, url, cause)
    const lead = async (lease: Lease): Promise<number> => {
      output.whisper(`leading '${name}', token ${lease.token}`)
      tell(call, { event: 'leading', name, token: lease.token, owner: lease.owner })
      const ending = await holder.run(lease)
      if (ending.kind === 'ended') return codeOf(ending)
      tell(call, { event: 'lost', name, token: lease.token, reason: ending.reason })
      await holder.lost(lease, ending.reason)
      // A lease that time has not yet ended is given back at once: we have stopped leading.
      await holder.giveBack(lease, ending.reason)
      throw new LeaseLostError(lease.resources, ending.reason)
    }
    const exitCode = await locks.elect(name, { signal: signals.interrupted }, lead)
    tell(call, { event: 'stepped down', name, exitCode })
    return exitCode ?? EXIT.ok
  }
  return withLocks(call, work, (engine) => holder.locksOptions(engine))
}

/** An election waits for its engine forever. The person who started it must hear of that, and once. */
function reachability(call: Call, name: string, url: string, cause: Error | undefined): void {
  if (cause === undefined) {
    call.output.say(`the engine ${url} answers again`)
    tell(call, { event: 'reachable', name })
  } else {
    const reason = reasonOf(cause)
    call.output.say(`campaigning goes on, but the engine ${url} cannot be used: ${reason}`)
    tell(call, { event: 'unreachable', name, reason })
  }
}

/** One line each; on stderr, since stdout is the command's. */
function tell({ output }: Call, event: object): void {
  if (output.json) output.object(event, process.stderr)
}
