import { createInterface } from 'node:readline/promises'
import type { LeaseInfo } from '../../index.ts'
import { EXIT, usage } from '../exit-codes.ts'
import { clean } from '../output.ts'
import { withLocks, type Call } from '../session.ts'
import { heldBy, leaseOn, whoIs } from '../who-holds.ts'

/** Ends a lease that is not ours. */
export async function release(call: Call): Promise<number> {
  const { line, output } = call
  const [resource, ...others] = line.names
  if (resource === undefined || others.length > 0)
    throw usage('expected one resource', 'ringfence release --force RESOURCE')
  return withLocks(call, async ({ locks, engine }) => {
    const lease = await leaseOn(locks, resource)
    if (lease === undefined) {
      if (output.json) output.object({ resource, released: false, reason: 'free' })
      else output.say(`'${resource}' is free`)
      return EXIT.no
    }
    if (!line.options.has('force')) throw usage(heldBy(lease), `ringfence release --force ${resource} ends that lease`)
    if (!line.options.has('yes') && !process.stdin.isTTY) {
      throw usage(
        `${heldBy(lease)}, and there is no terminal to ask on`,
        `ringfence release --force --yes ${resource} does not ask`,
      )
    }
    const { owner, token, remainingMs } = lease
    if (!line.options.has('yes') && !(await agrees(call, lease))) return EXIT.no
    // Of this owner alone: if it changed hands while we asked, the new holder keeps it.
    const { ours } = await engine.release({ resources: [resource], owner, token, ttlMs: remainingMs ?? 1 })
    if (output.json)
      output.object({ resource, released: ours, owner, token, ...(ours ? {} : { reason: 'changed hands' }) })
    else if (ours) output.say(`released '${resource}' of ${whoIs(owner)}, token ${token}`)
    else output.complain(`'${resource}' was no longer of ${whoIs(owner)}, so nothing was released`)
    return ours ? EXIT.ok : EXIT.no
  })
}

async function agrees({ signals }: Call, lease: LeaseInfo): Promise<boolean> {
  const question = 'If its holder still works, two will work on it until its next renewal fails. Release it? [y/N] '
  const prompt = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await prompt.question(`${clean(heldBy(lease))}.\n${question}`, { signal: signals.interrupted })
    return /^y(es)?$/i.test(answer.trim())
  } finally {
    prompt.close()
  }
}
