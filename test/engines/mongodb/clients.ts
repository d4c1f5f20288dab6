import { MongoClient, type Long, type MongoClientOptions } from 'mongodb'
import type { Engine, LeaseInfo, LeaseRef, LeaseRequest } from '../../../src/engine.ts'
import { mongodb, type MongodbOptions } from '../../../src/engines/mongodb/index.ts'

export interface Opened extends AsyncDisposable {
  readonly client: MongoClient
  readonly engine: Engine
}

/** An engine with a client of its own, as a process has it. */
export function open(url: string, options: MongodbOptions = {}, clientOptions: MongoClientOptions = {}): Opened {
  const client = new MongoClient(url, clientOptions)
  const engine = mongodb(client.db('app'), options)
  return {
    client,
    engine,
    async [Symbol.asyncDispose]() {
      await engine.close()
      await client.close()
    },
  }
}

/** As a test writes it into the collection. */
export interface LeaseDocument {
  readonly _id: string
  readonly token?: Long | number | string
  readonly owner?: string | null
}

let attempts = 0

export function request(resources: readonly string[], some: Partial<LeaseRequest> = {}): LeaseRequest {
  return { resources, owner: `${++attempts}@test`, ttlMs: 30_000, ...some }
}

/** Rejects when it is not granted. */
export async function granted(engine: Engine, asked: LeaseRequest): Promise<LeaseRef> {
  const outcome = await engine.acquire(asked)
  if (outcome.kind === 'refused') throw new Error(`${asked.resources.join(', ')} held by ${outcome.holder}`)
  return { ...asked, token: outcome.token }
}

export async function held(engine: Engine, resource?: string): Promise<LeaseInfo[]> {
  const infos: LeaseInfo[] = []
  for await (const info of engine.inspect(resource)) infos.push(info)
  return infos
}
