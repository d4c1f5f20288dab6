import { spawn, type ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { isStopped } from './process-tree.ts'
import { tethered } from './tether.ts'
import { until } from './until.ts'

const stderrTailChars = 8_000

export interface WorkerOptions {
  args?: readonly string[]
  env?: Record<string, string>
  /** Another Node than the one that runs the tests. */
  node?: string
  /** A command that runs the worker: `unshare` and the like. */
  under?: readonly string[]
  /** Is told every message at once; `next` then sees none. */
  onMessage?: (message: unknown) => void
}

export interface NextOptions {
  withinMs?: number
  /** Named by the error. */
  what?: string
}

const running = new Set<ChildProcess>()

process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

/**
 * Runs a JavaScript file as a Node process of its own. The worker receives with `process.on('message')` and answers
 * with `process.send`. It cannot be TypeScript, which Node 20 does not run, so it imports the built package.
 */
export function startWorker<Message = unknown>(file: string | URL, options: WorkerOptions = {}): Worker<Message> {
  return new Worker<Message>(typeof file === 'string' ? file : fileURLToPath(file), options)
}

export class Worker<Message> implements AsyncDisposable {
  readonly #file: string
  readonly #child: ChildProcess
  readonly #exited: Promise<number | NodeJS.Signals>
  #ended: number | NodeJS.Signals | undefined
  /** Messages that nobody has asked for yet, oldest first. */
  readonly #inbox: Message[] = []
  #stderr = ''
  #stdout = ''

  constructor(file: string, { args = [], env = {}, node = process.execPath, under = [], onMessage }: WorkerOptions) {
    this.#file = file
    const [program, ...rest] = [...under, node, file, ...args]
    const child = spawn(...tethered(program!, rest), {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    })
    this.#child = child
    running.add(child)
    child.on('message', onMessage ?? ((message) => this.#inbox.push(message as Message)))
    child.stdout?.setEncoding('utf8').on('data', (text) => (this.#stdout += String(text)))
    child.stderr?.setEncoding('utf8').on('data', (text) => {
      this.#stderr = (this.#stderr + String(text)).slice(-stderrTailChars)
    })
    // Sending to a worker that has just died: the error would end the test run; `next` tells about the death.
    child.on('error', () => undefined)
    this.#exited = new Promise((resolve) => {
      // 'close' and not 'exit': by then the last messages and the last of stderr have arrived.
      child.once('close', (code, signal) => {
        running.delete(child)
        this.#ended = signal ?? code ?? 0
        resolve(this.#ended)
      })
    })
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.#file} did not start`)
    return this.#child.pid
  }

  get stdout(): string {
    return this.#stdout
  }

  get stderr(): string {
    return this.#stderr
  }

  /** How the worker ends: its exit code or the signal that ended it. */
  get exited(): Promise<number | NodeJS.Signals> {
    return this.#exited
  }

  send(message: object): void {
    this.#child.send(message)
  }

  /** Takes the oldest message that fits, waiting for it where it has not come yet. Others stay for later. */
  async next<T extends Message>(fits: (message: Message) => message is T, options?: NextOptions): Promise<T>
  async next(fits?: (message: Message) => boolean, options?: NextOptions): Promise<Message>
  async next(
    fits: (message: Message) => boolean = () => true,
    { withinMs = 10_000, what = 'a message' }: NextOptions = {},
  ): Promise<Message> {
    let found = -1
    const arrived = (): boolean => {
      found = this.#inbox.findIndex(fits)
      return found >= 0 || this.#ended !== undefined
    }
    try {
      await until(arrived, { what, withinMs, everyMs: 2 })
    } catch (error) {
      throw this.#failure(`sent no ${what} within ${withinMs} ms`, error)
    }
    if (found < 0) throw this.#failure(`ended with ${this.#ended} before ${what}`)
    return this.#inbox.splice(found, 1)[0] as Message
  }

  /** Stops the whole process, as a long garbage collection or a suspended machine does. */
  async pause(): Promise<void> {
    this.#child.kill('SIGSTOP')
    await until(() => isStopped(this.pid), { what: `${this.#file} is paused` })
  }

  async resume(): Promise<void> {
    this.#child.kill('SIGCONT')
    await until(() => !isStopped(this.pid), { what: `${this.#file} runs again` })
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    this.#child.kill(signal)
    await this.#exited
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended === undefined) await this.kill()
  }

  #failure(how: string, cause?: unknown): Error {
    const unread = JSON.stringify(this.#inbox.slice(-5))
    return new Error(`${this.#file} ${how}; unread: ${unread}; stderr:\n${this.#stderr}`, {
      cause,
    })
  }
}
