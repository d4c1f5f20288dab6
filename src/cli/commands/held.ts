import { remainingByFile } from '../child/deadline-file.ts'
import { EXIT, usage } from '../exit-codes.ts'
import { span } from '../../duration.ts'
import { ownerParts } from '../../owner.ts'
import type { Call } from '../session.ts'

/** Is the lease that this process was started under still held? */
export async function held({ output }: Call): Promise<number> {
  const path = process.env['RINGFENCE_DEADLINE_FILE']
  if (path === undefined) {
    throw usage(
      'there is no RINGFENCE_DEADLINE_FILE',
      'call it inside of the command that ringfence run or elect has started',
    )
  }
  const remainingMs = remainingByFile(path)
  const isHeld = remainingMs > 0
  const { note } = ownerParts(process.env['RINGFENCE_OWNER'] ?? '')
  if (output.json) {
    const { RINGFENCE_RESOURCE: resource = '', RINGFENCE_TOKEN: token } = process.env
    output.object({ held: isHeld, remainingMs, resources: resource.split('\n'), token, note })
  } else if (!output.quiet && process.stdout.isTTY) {
    const what = note === undefined ? '' : ` (${note})`
    output.line(isHeld ? `held${what}, for ${span(remainingMs)} more unless renewed` : `not held${what}`)
  }
  return isHeld ? EXIT.ok : EXIT.no
}
