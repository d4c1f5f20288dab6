import { spawn, type ChildProcess } from 'node:child_process'
import path from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { isGone, isStopped, processTree, signalAll } from './process-tree.ts'
import { createFolder, removeFolder } from './temporary-folder.ts'
import { tethered } from './tether.ts'
import { until } from './until.ts'

/** The command as it is installed. */
export const RINGFENCE = fileURLToPath(new URL('../dist/cli/main.cjs', import.meta.url))

export interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
}

export interface StartOptions {
  env?: Record<string, string>
  /** Who runs it, if not the one who runs the tests. */
  user?: { uid?: number; gid?: number }
  /** What it is run under, such as `['unshare', '--mount']`. */
  under?: readonly string[]
}

/** A home of its own: the embedded engine, the config files and the current folder of some commands that belong together. */
export class Home implements AsyncDisposable {
  readonly folder = createFolder('cli')
  readonly #commands: Command[] = []
  readonly #env: Record<string, string>

  constructor(env: Record<string, string> = {}) {
    this.#env = env
  }

  /** A path in it. */
  file(name: string): string {
    return path.join(this.folder, name)
  }

  /** `ringfence …` without a terminal. */
  start(args: readonly string[], options: StartOptions = {}): Command {
    const [file, ...rest] = [...(options.under ?? []), process.execPath, RINGFENCE, ...args]
    return this.#spawn(file!, rest, options)
  }

  /** The same, to its end. */
  async run(args: readonly string[], options: StartOptions = {}): Promise<Ended> {
    return this.start(args, options).ended
  }

  /** A shell command on a terminal of its own; what is typed goes to `type`, what is shown to `stdout`. */
  terminal(command: string, options: StartOptions = {}): Command {
    return this.#spawn('script', ['-qec', command, '/dev/null'], options)
  }

  /** A line for the shell, in which `$NODE $RINGFENCE` is the command. */
  shell(line: string, options: StartOptions = {}): Command {
    return this.#spawn('/bin/sh', ['-c', line], options)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#commands.map((command) => command.kill()))
    removeFolder(this.folder)
  }

  #spawn(file: string, args: readonly string[], { env = {}, user = {} }: StartOptions): Command {
    const { PATH = '' } = process.env
    const child = spawn(...tethered(file, args), {
      ...user,
      cwd: this.folder,
      env: {
        PATH,
        HOME: this.folder,
        XDG_STATE_HOME: this.folder,
        XDG_CONFIG_HOME: this.folder,
        TMPDIR: this.folder,
        NODE: process.execPath,
        RINGFENCE,
        ...this.#env,
        ...env,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const command = new Command(child)
    this.#commands.push(command)
    return command
  }
}

/** A process that was started by a test. */
export class Command {
  readonly ended: Promise<Ended>
  readonly #child: ChildProcess
  #over = false
  stdout = ''
  stderr = ''

  constructor(child: ChildProcess) {
    this.#child = child
    child.stdout?.setEncoding('utf8').on('data', (text) => (this.stdout += String(text)))
    child.stderr?.setEncoding('utf8').on('data', (text) => (this.stderr += String(text)))
    child.stdin?.on('error', () => undefined)
    this.ended = new Promise((resolve) => {
      // Not 'close': what the command leaves running keeps its output open, and whether it does is often the question.
      child.once('exit', (code, signal) => {
        this.#over = true
        void this.#read().then(() => resolve({ code, signal, stdout: this.stdout, stderr: this.stderr }))
      })
    })
  }

  /** What an ended process has written is there, but a busy one of ours may not have read it: until several turns bring no more. */
  async #read(): Promise<void> {
    const length = (): number => this.stdout.length + this.stderr.length
    for (let quiet = 0; quiet < 5; quiet++) {
      const before = length()
      await turn()
      if (length() > before) quiet = 0
    }
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('it did not start')
    return this.#child.pid
  }

  /** Waits until it has printed something that fits; answers the first group, or all of it. */
  async printed(pattern: RegExp, withinMs = 30_000): Promise<string> {
    try {
      const match = await until(() => pattern.exec(this.stdout), { what: `output like ${pattern}`, withinMs })
      return match[1] ?? match[0]
    } catch (error) {
      throw new Error(`${String(error)}\nstdout:\n${this.stdout}\nstderr:\n${this.stderr}`, { cause: error })
    }
  }

  type(keys: string): void {
    this.#child.stdin?.write(keys)
  }

  endInput(): void {
    this.#child.stdin?.end()
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGSTOP')
    await until(() => isStopped(this.pid), { what: 'it is stopped' })
  }

  /** With all that descends from it. */
  async kill(): Promise<void> {
    if (this.#over) return
    const tree = processTree(this.pid)
    signalAll(tree, 'SIGKILL')
    await this.ended
    await until(() => tree.every(isGone), { what: 'all of it is gone' })
  }
}

/** Time since boot in milliseconds, the clock of the deadline file. */
export { sharedNow } from '../src/cli/child/shared-clock.ts'
