import { ForeignTokenError, GuardError, StaleTokenError } from '../src/errors.ts'
import { casGuard } from '../src/guards/cas.ts'
import { objectStore, type ObjectRequest, type ObjectResponse } from '../src/guards/object-store.ts'
import { sha1 } from '../src/engines/redis/sha1.ts'
import type { Lease } from '../src/lease.ts'
import type { History } from './history.ts'
import type { Link, Network } from './network.ts'
import type { ObjectsPlan } from './plan.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'

const FENCE_HEADER = 'x-amz-meta-fence'

/** How long the transport waits for an answer before it sends the request again, and how often it does. */
const PATIENCE_MS = { least: 20, most: 250 }
const MOST_TRIES = 4
/** What is on its way while the path is cut looks this often whether it is open again. */
const KNOCK_MS = 20
/** Of requests, which part gets lost by itself. Of answers that is drawn. */
const LOST_REQUESTS = 0.03
/** How long a process waits for the store: shorter than in real life, so that it gives up within a run. */
const TIMEOUT_MS = 1000

interface StoredObject {
  readonly etag: string
  readonly body: Uint8Array
  readonly fence: string | null
}

/** One call of the guard. */
interface Writing {
  readonly call: number
  readonly process: Process
  readonly resource: string
  readonly owner: string
  readonly token: number
  readonly random: Seeded
}

/**
 * An object storage under the shipped guard: counters again, one an object. Between the two is a transport as there are many: it sends
 * a request again when it hears nothing for a while, so that what was done already is asked for once more.
 */
export class ObjectStorage {
  readonly #network: Network
  readonly #history: History
  readonly #plan: ObjectsPlan
  readonly #objects = new Map<string, StoredObject>()
  #versions = 0
  #calls = 0

  constructor(network: Network, history: History, plan: ObjectsPlan) {
    this.#network = network
    this.#history = history
    this.#plan = plan
  }

  /** Makes the counter of a resource one higher, under a lease that may be over. */
  async count(process: Process, lease: Lease, resource: string, random: Seeded): Promise<void> {
    const { owner } = lease
    const token = Number(lease.token)
    const call = ++this.#calls
    const writing: Writing = { call, process, resource, owner, token, random: random.fork('transport') }
    const store = objectStore({
      url: (key) => key,
      fetch: (key, request) => this.#fetch(key, request, writing),
      fenceIn: this.#plan.fenceIn,
    })
    const guard = casGuard(store, { clock: process, random: random.fork('guard'), requestTimeout: TIMEOUT_MS })
    const tell = (told: { kind: 'counted' } | { kind: 'write'; base: 0; accepted: false }, value: number): void => {
      const { nowMs: at, name } = process
      this.#history.add({ at, ...told, process: name, store: 'objects', owner, token, resource, call, value })
    }
    try {
      if (random.chance(0.5)) await guard.enter(lease)
      const value = await guard.write(lease, resource, (before) => bytes(String(numberIn(before) + 1)))
      tell({ kind: 'counted' }, numberIn(value))
    } catch (error) {
      if (error instanceof StaleTokenError) tell({ kind: 'write', base: 0, accepted: false }, 0)
      else if (!(error instanceof ForeignTokenError || error instanceof GuardError || error instanceof Unanswered))
        throw error
    }
  }

  /** What `fetch` is to the guard: the same request is sent until one answer has come, and the first that comes counts. */
  #fetch(key: string, request: ObjectRequest, writing: Writing): Promise<ObjectResponse> {
    const { process, random } = writing
    const { time } = this.#network
    const link = this.#network.link(process.name, 'store')
    return new Promise((resolve, reject) => {
      let isOpen = true
      const settle = (outcome: () => void): void => {
        if (isOpen) outcome()
        isOpen = false
      }
      const send = (tries: number): void => {
        const leavesMs = process.leave(request.method === 'PUT' ? 'write' : 'message')
        this.#travel(link, 'cutTo', leavesMs, random, () => {
          const answer = this.#answer(key, request, writing)
          this.#travel(link, 'cutFrom', time.nowMs, random, () => process.enter(() => settle(() => resolve(answer))))
        })
        time.at(leavesMs + random.between(PATIENCE_MS.least, PATIENCE_MS.most), () =>
          process.enter(() => {
            if (!isOpen) return
            if (tries < MOST_TRIES) send(tries + 1)
            else settle(() => reject(new Unanswered()))
          }, 'timer'),
        )
      }
      send(1)
    })
  }

  /** One way, if it gets there at all. */
  #travel(link: Link, cut: 'cutTo' | 'cutFrom', fromMs: number, random: Seeded, arrive: () => void): void {
    const { time } = this.#network
    const arrivesMs = fromMs + this.#network.travelMs(random) + link.delayMs
    const lost =
      cut === 'cutTo' ? Math.max(link.loseRequest, LOST_REQUESTS) : Math.max(link.loseReply, this.#plan.lostAnswers)
    if (random.chance(lost)) return
    const knock = (): void => {
      if (link[cut] > 0) time.after(KNOCK_MS, knock)
      else arrive()
    }
    time.at(arrivesMs, knock)
  }

  #answer(key: string, { method, headers, body }: ObjectRequest, writing: Writing): ObjectResponse {
    const stored = this.#objects.get(key)
    if (method === 'GET') return stored === undefined ? response(404) : response(200, stored)
    const isCurrent = stored === undefined ? headers['if-none-match'] === '*' : headers['if-match'] === stored.etag
    if (!isCurrent) return response(412)
    const next = { etag: this.#etagOf(body!), body: body!, fence: headers[FENCE_HEADER] ?? null }
    this.#objects.set(key, next)
    const [base, value] = [stored === undefined ? 0 : this.#valueOf(stored), this.#valueOf(next)]
    const { call, process, owner, token, resource } = writing
    // A fence alone is raised by what is to the other store a read.
    const kind = base === value ? 'read' : 'write'
    const access = { process: process.name, store: 'objects', owner, token, resource, base, value, call } as const
    this.#history.add({ at: this.#network.time.nowMs, kind, ...access, accepted: true })
    return response(200, next)
  }

  /** Of the content alone, as that of S3, or another one for every write. */
  #etagOf(body: Uint8Array): string {
    return this.#plan.fenceIn === 'body' ? `"${sha1(new TextDecoder().decode(body))}"` : `"${++this.#versions}"`
  }

  #valueOf({ body }: StoredObject): number {
    return numberIn(this.#plan.fenceIn === 'body' ? body.subarray(body.indexOf(NEWLINE) + 1) : body)
  }
}

/** A transport that has given up. */
class Unanswered extends Error {}

const NEWLINE = 10

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

function numberIn(value: Uint8Array | undefined): number {
  return Number(new TextDecoder().decode(value))
}

function response(status: number, { etag, body, fence }: Partial<StoredObject> = {}): ObjectResponse {
  const headers: Record<string, string | null | undefined> = { etag, [FENCE_HEADER]: fence }
  return {
    status,
    headers: { get: (name) => headers[name] ?? null },
    arrayBuffer: () => Promise.resolve(new Uint8Array(body ?? []).buffer),
  }
}
