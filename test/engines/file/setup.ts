import { spawnSync } from 'node:child_process'
import { chownSync } from 'node:fs'
import { join } from 'node:path'
import type { Engine, LeaseInfo } from '../../../src/engine.ts'
import { startWorker, type Worker, type WorkerOptions } from '../../../harness/child.ts'
import { createFolder, removeFolder } from '../../../harness/temporary-folder.ts'

export interface Message {
  readonly type: string
  readonly [field: string]: unknown
}

/** A folder of its own, the path of a file in it, and processes that use it; all gone in the end. */
export class Place implements AsyncDisposable {
  readonly folder = createFolder('file')
  readonly path = join(this.folder, 'locks.db')
  readonly #workers: Worker<Message>[] = []

  constructor() {
    // There is no server to be given the folder to; within a namespace another user's would be out of reach.
    chownSync(this.folder, process.getuid!(), process.getgid!())
  }

  worker(file: string, options: WorkerOptions = {}): Worker<Message> {
    const worker = startWorker<Message>(new URL(`../../process/workers/${file}`, import.meta.url), {
      ...options,
      env: { RINGFENCE_FILE: this.path, ...options.env },
    })
    this.#workers.push(worker)
    return worker
  }

  /** A process with locks of its own. */
  async puppet(options: PuppetOptions = {}): Promise<Puppet> {
    const { ttlMs = 30_000, engine = {}, env, ...rest } = options
    const worker = this.worker('puppet.mjs', {
      ...rest,
      args: ['file', String(ttlMs)],
      env: { RINGFENCE_FILE_OPTIONS: JSON.stringify(engine), ...env },
    })
    await worker.next(({ type }) => type === 'ready', { withinMs: 40_000, what: 'sign of life' })
    return new Puppet(worker)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const worker of this.#workers) await worker[Symbol.asyncDispose]()
    removeFolder(this.folder)
  }
}

export interface PuppetOptions extends WorkerOptions {
  readonly ttlMs?: number
  /** Options of its engine. */
  readonly engine?: object
}

export class Puppet {
  readonly worker: Worker<Message>
  #calls = 0

  constructor(worker: Worker<Message>) {
    this.worker = worker
  }

  /** Answers what came back, also where that is a failure: `type` tells. */
  async call(call: string, args: object = {}): Promise<Message> {
    const id = ++this.#calls
    this.worker.send({ id, call, ...args })
    return this.worker.next((message) => message['id'] === id, { withinMs: 55_000, what: `answer to ${call}` })
  }
}

/** What an engine sees as held; closes it. */
export async function leases(engine: Engine, resource?: string): Promise<LeaseInfo[]> {
  const all: LeaseInfo[] = []
  for await (const info of engine.inspect(resource)) all.push(info)
  await engine.close()
  return all
}

/** Arguments of `unshare` that give a process namespaces of its own, together with the right to set them up. */
export function unshared(...options: string[]): string[] {
  return ['unshare', '--map-root-user', ...options]
}

/** The same, and a shell command first. */
export function unsharedAfter(command: string, ...options: string[]): string[] {
  return [...unshared(...options), 'sh', '-c', `${command} && exec "$@"`, 'sh']
}

/** Root may do everything, so what is not allowed to a user is tested as nobody. */
export const AS_NOBODY =
  process.getuid!() === 0 ? ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', '--'] : []

/** Containers need rights that a machine may not give; then their tests are skipped. */
export const hasNamespaces = runs(unshared('--mount', '--pid', '--time', '--fork', 'true'))

function runs([program, ...args]: readonly string[]): boolean {
  return spawnSync(program!, args).status === 0
}
