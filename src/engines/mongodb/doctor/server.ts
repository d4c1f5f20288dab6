import type { Finding } from '../../../engine.ts'
import { codeOf } from '../requests.ts'
import type { CheckPlan, Reply } from '../doctor.ts'

/** The oldest that can compute in the projection of an update's answer. */
const OLDEST = [4, 4] as const

export function checkVersion(build: Reply): Finding {
  const id = 'mongodb/version'
  const version = build.kind === 'reply' ? String(build.value['version']) : undefined
  const [major = Number.NaN, minor = Number.NaN] = (version ?? '').split('.').map(Number)
  if (Number.isNaN(minor)) {
    return { id, severity: 'note', found: 'could not find out the version', meaning: 'This was not checked.' }
  }
  const found = `MongoDB ${version}`
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) {
    return { id, severity: 'ok', found, meaning: 'It knows all that the locks ask of it.' }
  }
  return {
    id,
    severity: 'critical',
    found,
    meaning: `The locks compute with the server's time in updates and their answers, which it can't before ${OLDEST.join('.')}.`,
    remedy: 'Upgrade the servers.',
  }
}

/** An update that asks for the same rights, and waits for the same majority, as one that grants a lease. */
export function checkWrites(writes: Reply, { timeoutMs, ttlMs }: CheckPlan): Finding {
  const id = 'mongodb/writes'
  if (writes.kind === 'error') {
    const { message } = writes.error
    const isDenied = codeOf(writes.error) === 13
    return {
      id,
      severity: 'critical',
      found: isDenied ? `may not write: ${message}` : `no majority acknowledged a write: ${message}`,
      meaning: 'No lease can be granted or renewed.',
      remedy: isDenied
        ? "Grant this user the role readWrite on the leases' database."
        : 'See with rs.status() which members are down or lag behind; an arbiter acknowledges nothing.',
    }
  }
  const found = `a majority acknowledged in ${Math.round(writes.tookMs)} ms`
  if (writes.tookMs * 4 <= timeoutMs) {
    return { id, severity: 'ok', found, meaning: `Well within the ${Math.round(timeoutMs)} ms that a request has.` }
  }
  return {
    id,
    severity: 'warning',
    found,
    meaning: `With a ttl of ${ttlMs} ms a request has ${Math.round(timeoutMs)} ms: a busy moment makes it fail, and costs leases.`,
    remedy: 'Use a longer ttl, or see why the members are slow: disks, network, load.',
  }
}

/** Where a clock is off by more, nobody looks after it. */
const MOST_OFFSET_MS = 1000

export function checkClock(hello: Extract<Reply, { kind: 'reply' }>, { ttlMs }: CheckPlan): Finding {
  const id = 'mongodb/clock'
  const { localTime } = hello.value
  if (!(localTime instanceof Date)) {
    return { id, severity: 'note', found: 'the server does not tell its time', meaning: 'This was not checked.' }
  }
  const offsetMs = localTime.getTime() - (hello.wallMs - hello.tookMs / 2)
  const found = `${Math.abs(Math.round(offsetMs))} ms ${offsetMs < 0 ? 'behind' : 'ahead of'} our clock`
  if (Math.abs(offsetMs) <= MOST_OFFSET_MS + hello.tookMs / 2) {
    const meaning =
      "Leases end by the primary's clock. Whether the other members agree with it, which matters at a failover, can't be seen from here."
    return { id, severity: 'ok', found, meaning }
  }
  return {
    id,
    severity: 'warning',
    found,
    meaning:
      "Leases end by the primary's clock. If it is set right, or a member with another time takes over, they end earlier or " +
      `later by as much; earlier than their ttl of ${ttlMs} ms means a second holder.`,
    remedy: 'Run NTP or chrony on every member, and on this machine.',
  }
}
