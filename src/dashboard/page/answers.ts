import type {
  ExtendAnswer,
  ExtendRequest,
  History,
  Past,
  ProblemDetails,
  ReleaseAnswer,
  ReleaseRequest,
  RunsAnswer,
} from '../protocol.ts'
import { address } from './address.ts'

/** The server has refused; the message is the server's own. */
class RefusedByServer extends Error {}

export function askHistory(resource: string): Promise<History> {
  return ask(address('history', { resource }))
}

export function askPast(words: string): Promise<Past> {
  return ask(address('past', { words }))
}

export function askRuns(resource: string): Promise<RunsAnswer> {
  return ask(address('runs', { resource }))
}

export function askRelease(lease: ReleaseRequest): Promise<ReleaseAnswer> {
  return post(address('release'), lease)
}

export function askExtend(lease: ExtendRequest): Promise<ExtendAnswer> {
  return post(address('extend'), lease)
}

function post<T>(url: string, body: object): Promise<T> {
  return ask(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
}

async function ask<T>(url: string, init: RequestInit = {}): Promise<T> {
  const answer = await fetch(url, { ...init, cache: 'no-store' }).catch((error: unknown) => {
    throw new RefusedByServer('the server did not answer', { cause: error })
  })
  const body: unknown = await answer.json().catch(() => undefined)
  if (answer.ok && body !== undefined) return body as T
  const problem = body as Partial<ProblemDetails> | undefined
  throw new RefusedByServer(problem?.detail ?? problem?.title ?? `the server answered ${answer.status}`)
}

export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
