import type { Engine, LeaseInfo, LeaseRef, LeaseRequest } from '../../../../src/engine.ts'
import { systemRandom } from '../../../../src/random.ts'

export function request(some: Partial<LeaseRequest> = {}): LeaseRequest {
  const id = systemRandom.id()
  return { resources: [`r-${id}`], owner: `${id}@test`, ttlMs: 30_000, ...some }
}

/** A lease that must be granted. */
export async function grant(engine: Engine, some: Partial<LeaseRequest> = {}): Promise<LeaseRef> {
  const asked = request(some)
  const outcome = await engine.acquire(asked)
  if (outcome.kind === 'refused') throw new Error(`refused: ${outcome.reason}, held by ${outcome.holder}`)
  return { ...asked, token: outcome.token }
}

export async function leasesOf(engine: Engine, resource?: string): Promise<LeaseInfo[]> {
  const leases: LeaseInfo[] = []
  for await (const lease of engine.inspect(resource)) leases.push(lease)
  return leases
}
