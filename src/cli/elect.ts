import { LeaseLostError, type Lease } from '../index.ts'
import { EXIT, usage } from './exit-codes.ts'
import { codeOf, Holder } from './hold.ts'
import { withLocks, type Call } from './session.ts'

/** Runs the command whenever we lead; ends when the command ends by itself while leading. */
export async function elect(call: Call): Promise<number> {
  const { line, output, signals } = call
  const holder = new Holder(call)
  const [name, ...others] = line.names
  if (name === undefined || others.length > 0) throw usage('expected one name', 'ringfence elect NAME -- COMMAND')
  return withLocks(
    call,
    (engine) => holder.locksOptions(engine),
    async ({ locks }) => {
      const lead = async (lease: Lease): Promise<number> => {
        output.whisper(`leading '${name}', token ${lease.token}`)
        tell(call, { event: 'leading', name, token: lease.token, owner: lease.owner })
        const ending = await holder.run(lease)
        if (ending.kind === 'ended') return codeOf(ending)
        tell(call, { event: 'lost', name, token: lease.token, reason: ending.reason })
        await holder.lost(lease, ending.reason)
        // A lease that time has not yet ended is given back at once: we have stopped leading.
        await lease.release().catch(() => undefined)
        throw new LeaseLostError(lease.resources, ending.reason)
      }
      const exitCode = await locks.elect(name, lead, { signal: signals.interrupted })
      tell(call, { event: 'stepped down', name, exitCode })
      return exitCode ?? EXIT.ok
    },
  )
}

/** One line each; on stderr, since stdout is the command's. */
function tell({ output }: Call, event: object): void {
  if (output.json) output.object(event, process.stderr)
}
