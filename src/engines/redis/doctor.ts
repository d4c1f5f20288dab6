import type { Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import type { RedisClient } from './client.ts'

export interface CheckPlan {
  readonly clients: readonly RedisClient[]
  readonly clock: Clock
  readonly ttlMs: number
  readonly driftMs: number
  readonly restart: 'auto' | 'strict' | 'trust'
}

/** The doctor: are these servers fit to hold locks of such a ttl? */
export function checkRedis(_plan: CheckPlan): Promise<readonly Finding[]> {
  return Promise.resolve([])
}
