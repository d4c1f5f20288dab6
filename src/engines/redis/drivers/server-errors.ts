/** The server does not have the script of an EVALSHA. GLIDE has a message of its own for it. */
export function isNoScript(error: unknown): boolean {
  return error instanceof Error && /^NOSCRIPT\b|\bNoScriptError\b/.test(error.message)
}

/** This user may not run the command, or not with these keys. GLIDE has a message of its own for it, too. */
export function isDenied(error: unknown): boolean {
  return error instanceof Error && /^NOPERM\b|\bPermissionDenied\b/.test(error.message)
}

/** The server is a replica, which takes no writes. GLIDE has a name of its own for it. */
export function isReadOnly(error: unknown): error is Error {
  return error instanceof Error && /\bREADONLY\b|\bReadOnly\b/.test(error.message)
}

/** An ACL refusal met inside a script has no code of its own, and another text since Redis 7.2. */
const DENIED_IN_SCRIPT = /can't (run this command or subcommand|access at least one of the keys)|ACL failure in script/i

/** This user may not do something that was asked for, by itself or in the middle of a script. */
export function lacksRight(error: Error): boolean {
  return isDenied(error) || DENIED_IN_SCRIPT.test(error.message)
}

/**
 * An error about rights, with the name of the right and what to do: a server says of a script only in which line it ended. Any other
 * error as it is.
 */
export function namingRight(error: unknown, script = '', prefix = ''): unknown {
  if (!(error instanceof Error) || !lacksRight(error)) return error
  const { message } = error
  const line = /user_script: ?(\d+)/.exec(message)?.[1]
  const inScript = /redis\.call\('(\w+)'/.exec(script.split('\n')[Number(line) - 1] ?? '')?.[1]
  const name = inScript ?? /permissions to run (?:the ')?([\w|]+)/.exec(message)?.[1]
  const all = 'docs/engines/redis.md has all rights that locks need, and the doctor names those that are missing'
  if (name !== undefined) {
    return new Error(`NOPERM: this user may not run '${name}': ACL SETUSER <user> +${name}; ${all}`, { cause: error })
  }
  const keys =
    prefix === ''
      ? 'is the prefix option missing (?prefix=… in a URL)? If not: ACL SETUSER <user> ~<names>* ~ringfence:*'
      : `ACL SETUSER <user> ~${prefix}* ~ringfence:*`
  const rights = /key/i.test(message) ? `some key of locks: ${keys}` : 'all that locks need'
  return new Error(`NOPERM: this user may not use ${rights}; ${all}`, { cause: error })
}

/** What the acquire script says on a server that would grant a first lease, and fail at the second. */
export const TOO_OLD = 'ringfence: too old'

/** That error in words, and without the surroundings in which a server repeats it. Any other error as it is. */
export function plainlyTooOld(error: unknown): unknown {
  if (!(error instanceof Error && error.message.includes(TOO_OLD))) return error
  const found = 'this server is older than Redis 6.2 and has no SET with GET: run Redis 7 or Valkey, or later'
  return new Error(found, { cause: error })
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

/** A script met a counter that is no number. */
const NO_COUNTER = /bad argument #\d to 'max' \(number expected, got nil\)/

/** The same, in the script of the usual case, which has written a number there before it failed: trying again helps. */
const WAS_NO_COUNTER = /attempt to compare nil with number/

/** Other software has written to the key of a fencing counter. */
export function meetsNoCounter({ message }: Error): boolean {
  return NO_COUNTER.test(message) || WAS_NO_COUNTER.test(message)
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
  DENIED_IN_SCRIPT,
  NO_COUNTER,
  /^this server is older than Redis 6\.2/,
  new RegExp(TOO_OLD),
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
