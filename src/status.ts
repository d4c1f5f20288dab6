import type { Engine, LeaseInfo } from './engine.ts'
import { ownerParts } from './owner.ts'

/** The leases of one resource or of all, with what their owners say. */
export async function* inspect(engine: Engine, resource?: string): AsyncIterable<LeaseInfo> {
  for await (const info of engine.inspect(resource)) {
    const { note } = ownerParts(info.owner)
    yield note === undefined ? info : { ...info, note }
  }
}
