import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { connect } from 'node:net'
import { isGone, isStopped, listensOn, processTree, signalAll } from './process-tree.ts'
import { giveAll, ownUser, removeFolder, serverUser } from './temporary-folder.ts'
import { tethered } from './tether.ts'
import { until } from './until.ts'

const logTailChars = 8_000
// Long enough for a busy machine to flush a small data folder; a server that takes longer hangs.
const graceMs = 5_000
// Three virtual machines starting on two busy cores have taken 20 s; a second is usual.
const startWithinMs = 45_000

export interface Command {
  path: string
  args: readonly string[]
  env?: Record<string, string>
  cwd?: string
}

export interface ServerPlan {
  /** Named by errors. */
  name: string
  /** The server's own temporary folder, removed when it is stopped. */
  folder: string
  command: Command
  /** The port by which clients reach it. */
  port: number
  /** Asks the server whether it serves. Exceptions count as no. */
  ready: () => Promise<boolean>
  stopSignal?: NodeJS.Signals
}

/** The server ended before it was ready, most likely because another process took its port. */
export class EarlyExit extends Error {}

const running = new Set<ChildProcess>()

process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

/** One server process that tests can freeze, kill and start again. */
export class Server implements AsyncDisposable {
  #plan: ServerPlan
  #child: ChildProcess | undefined
  #exited: Promise<void> = Promise.resolve()
  #log = ''
  #stopped = false
  /** The user that it runs as, if that is another one for each server. */
  readonly ownUser = ownUser()

  private constructor(plan: ServerPlan) {
    this.#plan = plan
  }

  static async start(plan: ServerPlan): Promise<Server> {
    const server = new Server(plan)
    try {
      await server.#launch()
    } catch (error) {
      await server.stop()
      throw error
    }
    return server
  }

  get name(): string {
    return this.#plan.name
  }

  /** Throws when the server does not run. */
  get pid(): number {
    const pid = this.#child?.pid
    if (pid === undefined) throw new Error(`${this.name} is not running`)
    return pid
  }

  get isRunning(): boolean {
    return this.#child !== undefined
  }

  /** The last lines that the server printed. */
  get log(): string {
    return this.#log
  }

  /** Returns when the kernel has stopped every thread: a signal alone may be delivered later. */
  async freeze(): Promise<void> {
    // The parent first, so that it makes no further children meanwhile.
    process.kill(this.pid, 'SIGSTOP')
    await until(() => isStopped(this.pid), { what: `${this.name} is frozen` })
    const tree = processTree(this.pid)
    signalAll(tree, 'SIGSTOP')
    await until(() => tree.every((pid) => isGone(pid) || isStopped(pid)), { what: `${this.name} is frozen whole` })
  }

  async thaw(): Promise<void> {
    signalAll(processTree(this.pid), 'SIGCONT')
    await until(() => !isStopped(this.pid), { what: `${this.name} runs again` })
  }

  /** A crash: nothing is flushed, nobody is told. Data and port stay for `restart`. */
  async kill(): Promise<void> {
    const child = this.#child
    if (child === undefined) return
    const tree = processTree(this.pid)
    child.kill('SIGKILL')
    signalAll(tree, 'SIGKILL')
    await this.#exited
    await until(() => tree.every(isGone), { what: `${this.name} is dead` })
  }

  /** Starts again with the same command, or with what `as` makes of it from now on, ending the server first where it runs. */
  async restart(
    prepare: () => void | Promise<void> = () => undefined,
    as?: (command: Command) => Command,
  ): Promise<void> {
    if (this.#stopped) throw new Error(`${this.name} was stopped for good`)
    await this.#end()
    await prepare()
    if (as !== undefined) this.#plan = { ...this.#plan, command: as(this.#plan.command) }
    await this.#launch()
  }

  /**
   * Ends the server and removes its folder. Nobody needs what it would still write, so it is killed, unless it has a
   * signal of its own: PostgreSQL would leave its shared memory behind.
   */
  async stop(): Promise<void> {
    this.#stopped = true
    await (this.#plan.stopSignal === undefined ? this.kill() : this.#end())
    removeFolder(this.#plan.folder)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }

  async #launch(): Promise<void> {
    const { command, name, port, ready } = this.#plan
    const user = this.ownUser
    if (user !== undefined) giveAll(this.#plan.folder, user)
    const child = spawn(...tethered(command.path, command.args), {
      ...(user === undefined ? serverUser() : { uid: user, gid: user }),
      cwd: command.cwd ?? this.#plan.folder,
      // What a server leaves in the folder for temporary files goes with its own folder.
      env: { ...process.env, TMPDIR: this.#plan.folder, ...command.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#child = child
    running.add(child)
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#log = (this.#log + text).slice(-logTailChars)
      })
    }
    let ended: string | undefined
    this.#exited = new Promise((resolve) => {
      const end = (how: string): void => {
        ended = how
        running.delete(child)
        this.#child = undefined
        resolve()
      }
      child.once('error', (error) => end(error.message))
      child.once('exit', (code, signal) => end(`exit ${signal ?? code}`))
    })
    try {
      let isOurs = false
      // The look at who listens reads the table of all connections, which takes as long as a pause here: only when someone does.
      const isUp = async (): Promise<boolean> => {
        isOurs ||= ended === undefined && (await accepts(port)) && listensOn(this.pid, port)
        return ended !== undefined || (isOurs && ready())
      }
      await until(isUp, { what: `${name} is ready`, withinMs: startWithinMs })
    } catch (error) {
      throw new Error(`${name} does not get ready; its log ends with:\n${this.#log}`, {
        cause: error,
      })
    }
    if (ended !== undefined) throw new EarlyExit(`${name} ended (${ended}); its log ends with:\n${this.#log}`)
  }

  async #end(): Promise<void> {
    const child = this.#child
    if (child === undefined) return
    child.kill(this.#plan.stopSignal ?? 'SIGTERM')
    // A frozen server would keep the signal for later.
    signalAll(processTree(this.pid), 'SIGCONT')
    const timer = setTimeout(() => void this.kill(), graceMs)
    await this.#exited
    clearTimeout(timer)
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(true))
    socket.once('error', () => resolve(false))
    void socket.once('connect', () => socket.destroy())
  })
}

/** Runs a program to its end as the servers' user, and returns what it printed. */
export async function runTool({ path, args, env, cwd }: Command, input?: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { ...serverUser(), env: { ...process.env, ...env }, maxBuffer: 16 * 1024 * 1024 }
    const where = cwd === undefined ? options : { ...options, cwd }
    const child = execFile(path, [...args], where, (error, stdout, stderr) => {
      if (error === null) resolve(stdout)
      else reject(new Error(`${path} ${args.join(' ')}: ${stdout}${stderr}`.trim(), { cause: error }))
    })
    if (input !== undefined) child.stdin?.end(input)
  })
}
