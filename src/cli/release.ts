import { createInterface } from 'node:readline/promises'
import type { LeaseInfo } from '../index.ts'
import { EXIT, usage } from './exit-codes.ts'
import { span, withoutSecrets } from './output.ts'
import { withLocks, type Call } from './session.ts'
import { whoIs } from './status.ts'

/** Ends a lease that is not ours. */
export async function release(call: Call): Promise<number> {
  const { line, output } = call
  const [resource, ...others] = line.names
  if (resource === undefined || others.length > 0)
    throw usage('expected one resource', 'ringfence release --force RESOURCE')
  if (!line.options.has('force')) {
    throw usage("the lease is someone else's", `ringfence release --force ${resource} ends it all the same`)
  }
  if (!line.options.has('yes') && !process.stdin.isTTY) {
    throw usage('there is no terminal to ask on', `ringfence release --force --yes ${resource} does not ask`)
  }
  return withLocks(
    call,
    () => ({}),
    async ({ locks, engine }) => {
      let lease: LeaseInfo | undefined
      for await (const found of locks.inspect(resource)) lease = found
      if (lease === undefined) {
        if (output.json) output.object({ resource, released: false, reason: 'free' })
        else output.say(`'${resource}' is free`)
        return EXIT.no
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
    },
  )
}

async function agrees({ signals }: Call, { resource, owner, token, remainingMs, heldMs }: LeaseInfo): Promise<boolean> {
  const since = heldMs === undefined ? '' : `, since ${span(heldMs)}`
  const left = remainingMs === undefined ? 'without an end' : `for ${span(remainingMs)} more unless renewed`
  const question = [
    `'${resource}' is held by ${whoIs(owner)}${since}, ${left} (token ${token}).`,
    'If it still works, two will work on it until its next renewal fails. Release it? [y/N] ',
  ].join('\n')
  const prompt = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await prompt.question(withoutSecrets(question), { signal: signals.interrupted })
    return /^y(es)?$/i.test(answer.trim())
  } finally {
    prompt.close()
  }
}
