import type { History, Verdict } from '../history.ts'

/** What a server answers in the course of things: it does not know the script, or has been told to refuse. */
const USUAL = /^(NOSCRIPT|NOPERM|OOM|WRONGTYPE)/

/** Servers are sent nothing that they cannot take, nothing that harms their other users, a release leaves nothing, an extension makes nothing. */
export function manners(history: History): Verdict {
  const checker = 'manners'
  // A person ends a lease on the one name that was looked at.
  const forced = new Set(history.of('forced').map(({ owner }) => owner))
  for (const { process, node, what, reply, kept, remade, at, owner } of history.of('exec')) {
    const refusal = reply.filter((one) => one instanceof Error).find(({ message }) => !USUAL.test(message))
    const why =
      refusal !== undefined
        ? `${process} sent ${node} a command that it refuses: ${refusal.message}`
        : /^(SCRIPT FLUSH|FLUSH|CONFIG SET)/.test(what)
          ? `${process} sent ${what} to ${node}, which others may use`
          : kept > 0 && !forced.has(owner)
            ? `a release on ${node} left ${kept} locks of its lease behind`
            : remade === true
              ? `an extension on ${node} put back a lock that was gone`
              : undefined
    if (why !== undefined) return { checker, verdict: 'false', why, at, owners: [owner] }
  }
  return { checker, verdict: 'true' }
}
