import type { Engine, LeaseInfo, LeaseRef, LeaseRequest } from '../../src/engine.ts'
import { systemRandom } from '../../src/random.ts'

/** For a new owner. */
export function requestFor(resources: string | string[], ttlMs = 20_000): LeaseRequest {
  return { resources: [resources].flat(), owner: `${systemRandom.id()}@test`, ttlMs }
}

export async function granted(from: Engine, request: LeaseRequest): Promise<LeaseRef> {
  const outcome = await from.acquire(request)
  if (outcome.kind !== 'granted') throw new Error(`${request.resources.join(', ')} is not free`)
  return { ...request, token: outcome.token }
}

export async function collect(infos: AsyncIterable<LeaseInfo>): Promise<LeaseInfo[]> {
  const all: LeaseInfo[] = []
  for await (const info of infos) all.push(info)
  return all
}

/** Of one free resource, `a`. */
export async function failureOf(from: Engine): Promise<Error> {
  return from.acquire(requestFor('a')).then(
    () => new Error('granted'),
    (error: unknown) => error as Error,
  )
}

/** All that a log could show of an error. */
export function inside(error: unknown): string {
  const { message, stack, cause } = error as Error
  return [message, stack, cause === undefined ? '' : inside(cause)].join('\n')
}
