import type { LeaseInfo } from '../../engine.ts'
import { READERS } from '../shared/readers.ts'
import { mongodbError } from './errors.ts'
import { holdersOf } from './statements.ts'
import type { MongodbSteps } from './steps.ts'

export async function* inspectMongodb(
  steps: MongodbSteps,
  timeoutMs: number,
  resource?: string,
): AsyncIterable<LeaseInfo> {
  const resources = resource === undefined ? undefined : [resource]
  try {
    for await (const shown of steps.find(resources, timeoutMs)) {
      const { resource } = shown
      for (const { owner, token, leftMs: remainingMs, heldMs } of holdersOf(shown)) {
        const kind = shown.owner === READERS ? { shared: true } : {}
        yield { resource, owner, token, remainingMs, ...kind, ...(heldMs === undefined ? {} : { heldMs }) }
      }
    }
  } catch (cause) {
    throw mongodbError(cause, resources ?? [])
  }
}
