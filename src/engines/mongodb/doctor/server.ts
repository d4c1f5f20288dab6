import type { Finding } from '../../../engine.ts'
import { findings, sentence } from '../../shared/findings.ts'
import { text } from '../../shared/shape.ts'
import { codeOf } from '../errors.ts'
import type { CommandReply, CommandResult } from './commands.ts'

/** Which leases the deployment should be fit for. */
export interface CheckedTtl {
  readonly ttlMs: number
  /** How long a request for such a lease may take. */
  readonly timeoutMs: number
}

const { ok, note, warning, critical } = findings('mongodb')

/** The oldest version that can compute in the projection of an update. */
const OLDEST = [4, 4] as const

export function checkVersion(build: CommandResult): Finding {
  const id = 'version'
  const version = build.kind === 'reply' ? text(build.value, 'version') : undefined
  const [major = Number.NaN, minor = Number.NaN] = (version ?? '').split('.').map(Number)
  if (Number.isNaN(minor)) return note(id, 'The server did not tell its version.', 'This was not checked.')
  const found = `The server is MongoDB ${version}.`
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) {
    return ok(id, found, 'The locks need 4.4 or newer, and are tested on 8.2.')
  }
  return critical(
    id,
    found,
    `The locks compute with the server's time in updates and their answers, which MongoDB cannot before ${OLDEST.join('.')}.`,
    'Upgrade the servers.',
  )
}

/** An update that needs the same permissions, and waits for the same majority, as one that grants a lease. */
export function checkWrites(writes: CommandResult, { timeoutMs, ttlMs }: CheckedTtl): Finding {
  const id = 'writes'
  if (writes.kind === 'error') {
    const { message } = writes.error
    const isDenied = codeOf(writes.error) === 13
    return critical(
      id,
      sentence(`${isDenied ? 'This user may not write' : 'No majority acknowledged a write'}: ${message}`),
      'No lease can be granted or renewed.',
      isDenied
        ? "Grant this user the role readWrite on the leases' database."
        : 'See with rs.status() which members are down or lag behind. An arbiter acknowledges nothing.',
    )
  }
  const found = `A majority acknowledged a write in ${Math.round(writes.tookMs)} ms.`
  if (writes.tookMs * 4 <= timeoutMs) {
    return ok(id, found, `That is well within the request timeout of ${Math.round(timeoutMs)} ms.`)
  }
  return warning(
    id,
    found,
    `With a ttl of ${ttlMs} ms the request timeout is ${Math.round(timeoutMs)} ms: on a busy server requests fail, and leases are lost.`,
    'Use a longer ttl, or see why the members are slow: disks, network, load.',
  )
}

/** A clock that is off by more is not synchronised. */
const MOST_OFFSET_MS = 1000

export function checkClock(hello: CommandReply, { ttlMs }: CheckedTtl): Finding {
  const id = 'clock'
  const { localTime } = hello.value
  if (!(localTime instanceof Date)) return note(id, 'The server did not tell its time.', 'This was not checked.')
  const offsetMs = localTime.getTime() - (hello.wallMs - hello.tookMs / 2)
  const side = offsetMs < 0 ? 'behind' : 'ahead of'
  const found = `The primary's clock is ${Math.abs(Math.round(offsetMs))} ms ${side} that of this process.`
  if (Math.abs(offsetMs) <= MOST_OFFSET_MS + hello.tookMs / 2) {
    return ok(
      id,
      found,
      "Leases end by the primary's clock. Whether the other members' clocks agree with it, which matters at a failover, " +
        'cannot be seen from here.',
    )
  }
  return warning(
    id,
    found,
    "Leases end by the primary's clock. If it is corrected, or a member with another time takes over, they end earlier or " +
      `later by that much. A lease that ends before its ttl of ${ttlMs} ms means a second holder.`,
    'Run NTP or chrony on every member, and on this machine.',
  )
}
