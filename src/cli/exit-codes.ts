/**
 * What ringfence itself exits with. `run` and `elect` otherwise pass on the command's own code, so these keep out of the
 * way: 128 + the highest signal (64) is 192, and systemd names its own failures from 200 on.
 */
export const EXIT = {
  ok: 0,
  /** Of the verbs that answer a question (held, status, release, doctor), and of migrate. Never of `run` and `elect`. */
  no: 1,
  /** Also what shells, env and timeout exit with; found out before anything is locked. */
  notExecutable: 126,
  notFound: 127,
  held: 193,
  waitTimeout: 194,
  lost: 195,
  engine: 196,
  usage: 197,
  skipped: 198,
  failed: 199,
} as const

/** For the help, the man page and docs/cli.md, in their order. */
export const EXIT_TABLE: readonly (readonly [code: string, meaning: string])[] = [
  ['0', 'done; of held, status, release and doctor: yes'],
  [
    '1',
    'held, status RESOURCE, release, doctor: the answer is no; migrate: a file could not be read (run and elect never exit with 1 by themselves)',
  ],
  [
    '126, 127',
    'the command of run or elect cannot be executed, or was not found; nothing was run, and nothing stays locked',
  ],
  ['128 + n', 'the command was ended by signal n, or ringfence was, while it waited'],
  ['193', 'held by someone else, with --no-wait (-E changes it)'],
  ['194', 'the --wait was over before the lease was ours (-E changes it)'],
  ['195', 'the lease was lost; the command was stopped, or had ended when that was found out'],
  ['196', 'the engine could not be reached or used; of runs and init --store: the store'],
  ['197', 'wrong usage: unknown options, bad values, a config file that cannot be read'],
  ['198', '--once: skipped, because it runs or has just run elsewhere (0 with --skip-ok)'],
  ['199', 'ringfence itself failed, or this system lacks something that it needs'],
]

/** An error with an exit code of its own, and what to do next. */
export class Failure extends Error {
  readonly exitCode: number
  readonly next: string | undefined

  constructor(exitCode: number, message: string, next?: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.exitCode = exitCode
    this.next = next
  }
}

/** What the library says of an option of its own, said of where the value came from. */
export function inWordsOf<T>(names: Readonly<Record<string, string>>, create: () => T): T {
  try {
    return create()
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof TypeError)) throw error
    const [, name = '', rest = ''] = /^([\w[\]]+)(: .*)$/s.exec(error.message) ?? []
    throw names[name] === undefined ? error : usage(`${names[name]}${rest}`)
  }
}

export function usage(message: string, next?: string): Failure {
  return new Failure(EXIT.usage, message, next)
}
