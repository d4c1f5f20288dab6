import { property } from '../engines/shared/shape.ts'
import { MOST_RUNS, type RecordedRun, type Run } from '../runs.ts'
import type { StoredEffect } from './effect.ts'
import type { Fenced } from './guard.ts'

/** What is used of a `Collection` of the driver. */
export interface RecordCollection {
  insertOne(document: object, options: object): Promise<unknown>
  updateOne(filter: object, update: object | readonly object[], options: object): Promise<unknown>
  findOne(filter: object, options: object): Promise<unknown>
  find(filter: object, options: object): { toArray(): Promise<unknown[]> }
  deleteMany(filter: object, options: object): Promise<unknown>
  createIndex(keys: object, options: object): Promise<unknown>
}

/** As text: the driver turns numbers of 64 bits into doubles, or into objects of its own. */
const asText = (field: string): object => ({ $toString: { $toLong: `$${field}` } })

/** What `once` records, a document a key. */
export class MongodbEffects {
  readonly #records: RecordCollection
  #hasIndex = false

  constructor(records: RecordCollection) {
    this.#records = records
  }

  /** Records with a time are deleted by the server itself, about once a minute, if their collection has such an index. */
  async index(): Promise<void> {
    if (this.#hasIndex) return
    await this.#records.createIndex({ until: 1 }, { expireAfterSeconds: 0 })
    this.#hasIndex = true
  }

  /**
   * Returns what is recorded for the key, or undefined when it is ours from now on. If another transaction takes it at the same
   * time, the server refuses one of the two, which then tries again.
   */
  async claimed(session: object, key: string, { token, engine }: Fenced): Promise<StoredEffect | undefined> {
    const found = await this.#read(session, key)
    if (found !== undefined) return found
    await this.#records.insertOne({ _id: key, token, engine }, { session })
    return undefined
  }

  async finished(
    session: object,
    key: string,
    { result, keepMs }: { readonly result: string | null; readonly keepMs: number | undefined },
  ): Promise<StoredEffect> {
    const until = keepMs === undefined ? {} : { until: { $add: ['$$NOW', keepMs] } }
    const fields = { result: { $literal: result }, at: '$$NOW', ...until }
    await this.#records.updateOne({ _id: key }, [{ $set: fields }], { session })
    return (await this.#read(session, key))!
  }

  async #read(session: object, key: string): Promise<StoredEffect | undefined> {
    const projection = { result: 1, at: asText('at'), token: asText('token') }
    const found = await this.#records.findOne({ _id: key }, { session, projection })
    if (found === null) return undefined
    return {
      result: (property(found, 'result') ?? null) as string | null,
      at: Number(property(found, 'at')),
      token: BigInt(String(property(found, 'token'))),
    }
  }
}

/** The runs of jobs, a document a run. */
export class MongodbRuns {
  readonly #runs: RecordCollection
  #hasIndex = false

  constructor(runs: RecordCollection) {
    this.#runs = runs
  }

  /** Creates the document of the run, or completes it. A beginning that comes late changes nothing. */
  async record({ owner, job, token, engine, outcome, tookMs, message }: Run, options: object): Promise<void> {
    await this.#index()
    const about = { job: literal(job), engine: literal(engine), token: literal(token) }
    const ending = { outcome: literal(outcome), tookMs: literal(tookMs), message: literal(message ?? null) }
    const at = { $subtract: ['$$NOW', tookMs] }
    const fields = outcome === 'began' ? unlessThere({ ...ending, at }) : { ...ending, ...unlessThere({ at }) }
    await this.#runs.updateOne({ _id: owner }, [{ $set: { ...about, ...fields } }], { upsert: true, ...options })
  }

  async trim(job: string, options: object): Promise<void> {
    const old = await this.#runs
      .find({ job }, { sort: NEWEST_FIRST, skip: MOST_RUNS, limit: 100, projection: { _id: 1 } })
      .toArray()
    if (old.length > 0) await this.#runs.deleteMany({ _id: { $in: old.map((run) => property(run, '_id')) } }, options)
  }

  async read(job: string, limit: number): Promise<readonly RecordedRun[]> {
    const projection = {
      engine: 1,
      outcome: 1,
      message: 1,
      tookMs: asText('tookMs'),
      at: asText('at'),
      token: asText('token'),
    }
    const found = await this.#runs.find({ job }, { sort: NEWEST_FIRST, limit, projection }).toArray()
    return found.map((run) => runOf(job, run))
  }

  async #index(): Promise<void> {
    if (this.#hasIndex) return
    await this.#runs.createIndex({ job: 1, ...NEWEST_FIRST }, {})
    this.#hasIndex = true
  }
}

const literal = (value: unknown): object => ({ $literal: value })

/** Fields that keep the value that they have. */
function unlessThere(fields: Readonly<Record<string, object>>): object {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, { $ifNull: [`$${name}`, value] }]))
}

const NEWEST_FIRST = { at: -1, token: -1 }

function runOf(job: string, found: unknown): RecordedRun {
  const text = (name: string): string => String(property(found, name))
  const message = property(found, 'message')
  return {
    job,
    owner: text('_id'),
    token: BigInt(text('token')),
    engine: text('engine'),
    outcome: text('outcome') as RecordedRun['outcome'],
    at: Number(text('at')),
    tookMs: Number(text('tookMs')),
    ...(typeof message === 'string' ? { message } : {}),
  }
}
