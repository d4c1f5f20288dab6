import { spawn, type ChildProcess } from 'node:child_process'
import { signalGroup } from './processes.ts'

/**
 * Ends the command when ringfence cannot: when it was killed, or is stopped while the deadline comes. A shell, because
 * it is there in a millisecond and needs one megabyte; in a session of its own, so that nothing sent to ringfence's process
 * group or to the terminal's reaches it.
 *
 * The first half waits for the end of its input, a pipe whose other end only ringfence has: the kernel closes it with
 * ringfence, however that dies. The second half sleeps until the deadline in the file and looks again, since it
 * may have been moved.
 *
 * On Linux it also finds processes that left the command's process group (`timeout` does, and every job of an interactive
 * shell): they still carry RINGFENCE_OWNER in their environment.
 */
const SCRIPT = `
trap '' HUP INT QUIT TERM USR1 USR2 TSTP TTIN TTOU PIPE

now() {
  if [ "$clock" = uptime ]; then
    read -r up _ </proc/uptime
    hundredths=\${up#*.}
    now=$((\${up%.*} * 1000 + \${hundredths#0} * 10))
  else
    now=$(($(date +%s) * 1000))
  fi
}

hit() {
  # The job controller first: it must not take back a terminal that is no longer ringfence's.
  if [ "$job" != 0 ] && [ "$1" = KILL ]; then kill -s KILL "$job"; fi
  kill -s "$1" -- "-$group"
  strays=
  for environ in $(grep -lF "RINGFENCE_OWNER=$owner" /proc/[0-9]*/environ); do
    pid=\${environ#/proc/} pid=\${pid%/environ}
    read -r stat <"/proc/$pid/stat" || continue
    fields=\${stat##*) }
    set -- "$1" $fields
    if [ "$4" != "$group" ]; then strays="$strays $pid"; kill -s "$1" "$pid"; fi
  done
}

# Again, because a process may have been forked between the look and the signal.
finish() {
  hit KILL
  for again in 1 2 3 4 5 6 7 8 9 10; do
    if [ -z "$strays" ]; then break; fi
    sleep 0.02
    hit KILL
  done
}

count() {
  termed=
  while read -r clock until term kill _ <"$file"; do
    now
    if [ "$now" -ge "$kill" ]; then break; fi
    next=$kill
    if [ -z "$termed" ]; then
      if [ "$now" -ge "$term" ]; then : >"$file.ended"; hit TERM; termed=1; else next=$term; fi
    fi
    left=$((next - now))
    sleep "$((left / 1000)).$(printf %03d $((left % 1000)))" || sleep 1 || break
  done
  : >"$file.ended"
  finish
}

watch() {
  file=$1 group=$2 job=$3 owner=$4
  count &
  while read -r _; do :; done
  finish
  rm -f "$file" "$file.new" "$file.ended" "$file.not-executed"
  rmdir "\${file%/*}"
  kill -s KILL 0
}
watch "$@"
`

export interface Charge {
  readonly deadlineFile: string
  /** The process group to end. */
  readonly group: number
  /** The shell that hands the terminal to the group, if one does. */
  readonly job: number | undefined
  readonly owner: string
}

/** How many times a watchdog that was killed is started again: it may be a mistake, or somebody wants to get rid of it. */
const RESTARTS = 5

export class Watchdog {
  readonly #charge: Charge
  readonly #failed: (cause: Error) => void
  #process: ChildProcess
  #restarts = 0
  #stopped = false

  /** `failed`: nobody watches any more. */
  constructor(charge: Charge, failed: (cause: Error) => void) {
    this.#charge = charge
    this.#failed = failed
    this.#process = this.#start()
  }

  /** The command is over: nothing may be sent to its process group any more, whose number may soon be another's. */
  stop(): void {
    this.#stopped = true
    this.#end()
  }

  #end(): void {
    if (this.#process.pid !== undefined) signalGroup(this.#process.pid, 'SIGKILL')
  }

  #restart(): void {
    if (this.#stopped) return
    // Its other half may still be there.
    this.#end()
    if (this.#restarts++ < RESTARTS) this.#process = this.#start()
    else this.#failed(new Error('it was killed again and again'))
  }

  #start(): ChildProcess {
    const { deadlineFile, group, job, owner } = this.#charge
    // Without our environment: it would find itself by it.
    const watchdog = spawn('/bin/sh', ['-s', '--', deadlineFile, String(group), String(job ?? 0), owner], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      env: { PATH: `/usr/bin:/bin:${process.env['PATH'] ?? ''}` },
    })
    // An error there is its death, which `exit` tells.
    watchdog.stdin?.on('error', () => undefined)
    // As its input, so that nobody who lists processes has to read it.
    watchdog.stdin?.write(SCRIPT)
    watchdog.once('error', (error) => {
      if (!this.#stopped) this.#failed(error)
    })
    watchdog.once('exit', () => this.#restart())
    return watchdog
  }
}
