import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { isatty } from 'node:tty'
import type { Readable, Writable } from 'node:stream'
import { statOf } from './processes.ts'

/**
 * Stands where the command will be, so that its process group can be watched before there is anything to watch: tells its
 * own number, waits for the word, and becomes the command. If ringfence is gone before that, it ends. If the command cannot
 * be executed, it leaves a file that says so; the exit code alone could be the command's own. (bash would exit without its trap.)
 */
const PLACEHOLDER = `
RINGFENCE_OWNER=$1
export RINGFENCE_OWNER
shift
echo "$$" >&3
read -r _ <&4 || exit 0
if [ -n "$BASH_VERSION" ]; then shopt -s execfail; fi
trap 'case $? in 126 | 127) : >"$RINGFENCE_DEADLINE_FILE.not-executed" ;; esac' EXIT
exec "$@" 3>&- 4<&-
`

/**
 * On a terminal. Node can give a child a process group of its own only together with a session of its own, and a session
 * without its terminal. A shell with job control does it properly: the command gets a group and the terminal, keys
 * like Ctrl-C reach it alone, and the terminal comes back when it is done.
 *
 * It reports when the command was stopped (Ctrl-Z), or may have been (it could also have exited with that code), and then
 * waits for an instruction.
 */
const JOB = `
trap : QUIT TERM HUP USR1 USR2
# Others would die of the command's Ctrl-C before they give the terminal back; bash does it in the right order, and gets
# the exit code wrong with a trap.
if [ -z "$BASH_VERSION" ]; then trap : INT; fi
placeholder=$1
shift
set -m
/bin/sh -c "$placeholder" ringfence "$@"
code=$?
while :; do
  case $code in 14[789] | 150) ;; *) break ;; esac
  echo stopped >&3
  read -r how <&4 || break
  case $how in
  fg) fg %% >/dev/null; code=$? ;;
  bg) bg %% >/dev/null; wait %%; code=$? ;;
  *) break ;;
  esac
done
exit $code
`

export interface Program {
  readonly argv: readonly string[]
  readonly env: NodeJS.ProcessEnv
  readonly owner: string
}

/** A command that is ready to start, in its process group. */
export class Launched {
  /** Of the command, and of its process group. */
  readonly pid: number
  /** The shell that hands it the terminal, if one does. */
  readonly job: number | undefined
  /** As a shell would show it: its exit code, or 128 + the signal that ended it. */
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>
  readonly #control: Writable

  constructor(child: ChildProcess, pid: number, ended: Launched['ended']) {
    this.pid = pid
    this.job = child.pid === pid ? undefined : child.pid
    this.ended = ended
    const { report, control } = pipes(child)
    this.#control = control
    if (this.job !== undefined) lines(report, () => this.#stopped())
  }

  /** From now on it runs. */
  go(): void {
    this.#control.write('go\n')
  }

  /** Ctrl-Z: we stop as well, with all of our own process group, as the shell that started us expects of its job. */
  #stopped(): void {
    if (!isStopped(this.pid)) return void this.#control.write('end\n')
    process.once('SIGCONT', () => this.#control.write(inForeground() ? 'fg\n' : 'bg\n'))
    process.kill(0, 'SIGSTOP')
  }
}

export async function launch({ argv, env, owner }: Program, terminal: boolean): Promise<Launched> {
  const args = terminal
    ? ['-c', JOB, 'ringfence', PLACEHOLDER, owner, ...argv]
    : ['-c', PLACEHOLDER, 'ringfence', owner, ...argv]
  const child = spawn('/bin/sh', args, {
    env,
    detached: !terminal,
    stdio: ['inherit', 'inherit', 'inherit', 'pipe', 'pipe'],
  })
  const ended = once(child, 'exit').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
  }))
  const { report, control } = pipes(child)
  // The command's end of it is closed when it starts, and when it is killed.
  control.on('error', () => undefined)
  if (!terminal && child.pid !== undefined) return new Launched(child, child.pid, ended)
  const pid = await Promise.race([
    new Promise<number>((resolve) => lines(report, (line) => resolve(Number(line)))),
    ended.then(({ code, signal }) => {
      throw new Error(`the shell that starts the command ended with ${signal ?? code}`)
    }),
  ])
  const group = statOf(pid)?.group
  if (group !== undefined && group !== pid) {
    control.end()
    throw new Error('this /bin/sh has no job control, so the command would have no process group of its own')
  }
  return new Launched(child, pid, ended)
}

function pipes({ stdio }: ChildProcess): { report: Readable; control: Writable } {
  return { report: stdio[3] as Readable, control: stdio[4] as Writable }
}

function lines(stream: Readable, tell: (line: string) => void): void {
  stream.setEncoding('utf8').on('data', (text: string) => {
    for (const line of text.split('\n')) if (line !== '') tell(line)
  })
}

/**
 * Whether the command gets the terminal: we have it now, and our input comes from it. (In `a | ringfence … | ringfence …`
 * two commands would want it, so there `--tty` says which one.)
 */
export function wantsTerminal(choice: 'auto' | 'always' | 'never'): boolean {
  if (choice === 'never' || (choice === 'auto' && !isatty(0))) return false
  return inForeground()
}

export function inForeground(): boolean {
  const stat = statOf('self')
  if (stat !== undefined) return stat.terminalGroup === stat.group
  const [group, terminalGroup] = ps('pgid=,tpgid=', process.pid)
  return group !== undefined && group === terminalGroup
}

function isStopped(pid: number): boolean {
  return (statOf(pid)?.state ?? ps('state=', pid)[0] ?? '').startsWith('T')
}

/** Where there is no /proc: macOS and the BSDs. */
function ps(columns: string, pid: number): string[] {
  const { stdout } = spawnSync('ps', ['-o', columns, '-p', String(pid)], { encoding: 'utf8' })
  return (stdout ?? '').trim().split(/\s+/)
}
