import { createInterface } from 'node:readline/promises'
import type { LeaseInfo, Locks } from '../../index.ts'
import { ownerParts, whoIs } from '../../owner.ts'
import { EXIT, usage, type Failure } from '../exit-codes.ts'
import { clean, type Output } from '../output.ts'
import { withLocks, type Call } from '../session.ts'
import { heldBy, inspect } from '../who-holds.ts'

/** Ends a lease that is not ours, or several that share a resource. */
export async function release(call: Call): Promise<number> {
  const { line, output } = call
  const [resource, ...others] = line.names
  if (resource === undefined || others.length > 0)
    throw usage('expected one resource', 'ringfence release --force RESOURCE')
  const holder = line.options.text('holder')
  if (holder !== undefined && line.options.has('all')) throw usage('--holder and --all exclude each other')
  return withLocks(call, async ({ locks, url }) => {
    const all = await inspect(locks, resource)
    const holders = all.filter(({ offered }) => offered !== true)
    // By its owner, by what `status` shows of it, or by its label.
    const leases = holders.filter(({ owner }) => {
      const names = [owner, whoIs(owner), `${whoIs(owner)} (shared)`, ownerParts(owner).label]
      return holder === undefined || names.includes(holder)
    })
    if (leases.length === 0) {
      const isFree = holders.length === 0
      const heir = isFree ? all[0] : undefined
      if (output.json) output.object({ resource, released: false, reason: isFree ? 'free' : 'another holder' })
      else if (heir !== undefined) output.say(`${heldBy(heir)}, so there is nothing to release`)
      else if (isFree) output.say(`'${resource}' is free on ${url}`)
      else output.say(`no holder of '${resource}' is called '${holder}': ${holders.map(heldBy).join('; ')}`)
      return EXIT.no
    }
    if (leases.length > 1 && !line.options.has('all')) throw severalHolders(resource, leases)
    const held = leases.map(heldBy).join('; ')
    const those = leases.length === 1 ? 'that lease' : 'those leases'
    if (!line.options.has('force')) throw usage(held, `ringfence release --force ${resource} ends ${those}`)
    if (!line.options.has('yes') && !process.stdin.isTTY) {
      throw usage(
        `${held}, and there is no terminal to ask on`,
        `ringfence release --force --yes ${resource} does not ask`,
      )
    }
    if (!line.options.has('yes') && !(await agrees(call, leases))) return EXIT.no
    let wereAllOurs = true
    for (const lease of leases) if (!(await end(locks, lease, output))) wereAllOurs = false
    return wereAllOurs ? EXIT.ok : EXIT.no
  })
}

/** Of this owner alone: if it changed hands while we asked, the new holder keeps it. */
async function end(locks: Locks, { resource, owner, token }: LeaseInfo, output: Output): Promise<boolean> {
  const ours = await locks.forceRelease(resource, { token, owner })
  if (output.json)
    output.object({ resource, released: ours, owner, token, ...(ours ? {} : { reason: 'changed hands' }) })
  else if (ours) output.say(`released '${resource}' of ${whoIs(owner)}, token ${token}`)
  else output.complain(`'${resource}' was no longer of ${whoIs(owner)}, so nothing was released`)
  return ours
}

/** A process may hold it several times: then only the whole owners tell its leases apart. */
function severalHolders(resource: string, leases: readonly LeaseInfo[]): Failure {
  const labels = leases.map(({ owner }) => whoIs(owner))
  const names = new Set(labels).size === labels.length ? labels : leases.map(({ owner }) => owner)
  return usage(
    `'${resource}' is shared by ${names.length}: ${names.join(', ')}`,
    `ringfence release --force --holder '${names[0]}' ${resource} ends one of these leases, --all instead of --holder ends them all`,
  )
}

async function agrees({ signals }: Call, leases: readonly LeaseInfo[]): Promise<boolean> {
  const [whose, what] = leases.length === 1 ? ['its holder', 'it'] : ['one of them', 'them']
  const question = `If ${whose} still works, two will work on it until its next renewal fails. Release ${what}? [y/N] `
  const prompt = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const held = leases.map((lease) => `${clean(heldBy(lease))}.\n`).join('')
    const answer = await prompt.question(`${held}${question}`, { signal: signals.interrupted })
    return /^y(es)?$/i.test(answer.trim())
  } finally {
    prompt.close()
  }
}
