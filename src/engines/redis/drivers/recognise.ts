import type { RedisClient } from '../client.ts'
import { hasMethods } from '../../shared/shape.ts'
import { describe, SUPPORTED } from './expected.ts'
import { ioredis, looksLikeIoredis } from './ioredis.ts'
import { looksLikeNodeRedis, nodeRedis } from './node-redis.ts'
import { looksLikeGlide, valkeyGlide } from './valkey-glide.ts'

/** Turns the user's own client into what the engine needs, or says at once what was expected and what came. */
export function recognise(value: unknown): RedisClient {
  if (isRedisClient(value)) return value
  if (looksLikeIoredis(value)) return ioredis(value)
  if (looksLikeNodeRedis(value)) return nodeRedis(value)
  if (looksLikeGlide(value)) return valkeyGlide(value)
  throw new TypeError(`expected ${SUPPORTED}; got ${describe(value)}`)
}

/** Made by a named factory, or somebody's own implementation of the interface. */
function isRedisClient(value: unknown): value is RedisClient {
  return hasMethods(value, 'run', 'runTogether', 'masters', 'subscriber', 'unusable') && 'identity' in value
}
