/** The server does not have the script of an EVALSHA. GLIDE has a message of its own for it. */
export function isNoScript(error: unknown): boolean {
  return error instanceof Error && /^NOSCRIPT\b|\bNoScriptError\b/.test(error.message)
}

/** This user may not run the command, or not with these keys. GLIDE has a message of its own for it, too. */
export function isDenied(error: unknown): boolean {
  return error instanceof Error && /^NOPERM\b|\bPermissionDenied\b/.test(error.message)
}

/** An error that the server has answered: it begins with a code, such as NOPERM. */
export function isReply(error: unknown): boolean {
  return error instanceof Error && /^[A-Z]{3,}\b/.test(error.message)
}

/** A node's answer that another one serves the key's slot (MOVED), or will soon and has the key already (ASK). */
export function redirectionOf(error: unknown): { kind: string; address: string } | undefined {
  const [, kind, address] = (error instanceof Error && /^(MOVED|ASK) \d+ (\S+)/.exec(error.message)) || []
  return kind === undefined || address === undefined ? undefined : { kind, address }
}

/**
 * Answers that stay the same when the command is sent again. READONLY, LOADING, CLUSTERDOWN, MISCONF, OOM and NOREPLICAS are not
 * among them: a failover, a restart or an operator ends those. GLIDE has messages of its own for some.
 */
const PERMANENT = [
  /\bNOAUTH\b/,
  /\bWRONGPASS\b/,
  /\bNOPERM\b|\bPermissionDenied\b/,
  /\bWRONGTYPE\b/,
  /\bCROSSSLOT\b|\bCrossSlot\b/,
  /\binvalid (username-password|password)\b/i,
  /\bunknown (Redis |Valkey )?(sub)?command\b/i,
  // An ACL refusal met inside a script has no code of its own.
  /can't run this command or subcommand/i,
  // The connection is used for subscriptions.
  /allowed in this context/i,
]

/** A retry cannot help: credentials, permissions, a key of another type, keys of several slots, an unknown command. */
export function isPermanent(error: unknown): boolean {
  let current = error
  // A Cluster that cannot start hides its last node's error in its own.
  for (let depth = 0; depth < DEEPEST_CAUSE && current instanceof Error; depth++) {
    const { message } = current
    if (PERMANENT.some((pattern) => pattern.test(message))) return true
    current = 'lastNodeError' in current ? current.lastNodeError : current.cause
  }
  return false
}

/** A chain of causes may be a ring; no driver's is longer than two. */
const DEEPEST_CAUSE = 5
