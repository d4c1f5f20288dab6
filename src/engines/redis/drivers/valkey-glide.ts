import type { RedisClient, RedisMaster, Send } from '../client.ts'
import { hasMethods, property, text } from '../../shared/shape.ts'
import { describe } from './expected.ts'
import { plain } from './reply.ts'
import { slotOf } from '../slot.ts'
import { glideSubscriber } from './valkey-glide-subscriber.ts'
import { together, togetherInSlot } from './valkey-glide-together.ts'
import { DECODER_STRING, type GlideClient } from './valkey-glide-types.ts'

/** Any client of GLIDE, of any version; what is used of it is checked when it is passed. */
export interface GlideLike {
  customCommand(...args: never[]): unknown
  invokeScript(...args: never[]): unknown
  close(...args: never[]): unknown
}

/** Wraps a GLIDE `GlideClient` or `GlideClusterClient`. */
export function valkeyGlide(client: GlideLike): RedisClient {
  if (!looksLikeGlide(client)) {
    throw new TypeError(
      `valkeyGlide(client): expected a GlideClient or GlideClusterClient of @valkey/valkey-glide, got ${describe(client)}`,
    )
  }
  const refused = refusedOption(client)
  if (refused !== undefined) throw new TypeError(`valkeyGlide(client): ${refused}`)
  // Only a Cluster has shard channels.
  const cluster = hasMethods(client, 'pubsubShardChannels')
  const addresses = addressesOf(client)
  const run = sender(client)
  return {
    driver: 'valkey-glide',
    identity: client,
    label: cluster ? `cluster(${addresses})` : addresses,
    // Of several addresses, GLIDE finds out itself which one is the master.
    server: cluster || addresses.includes(',') ? undefined : serverOf(client),
    cluster,
    unusable: () => (property(client, 'isClosed') === true ? 'it is closed' : undefined),
    run: cluster ? (command, key) => sender(client, routeOf(key))(command) : run,
    runTogether: cluster
      ? (commands, key) => togetherInSlot(sender(client, routeOf(key)), commands, slotOf(key))
      : (commands) => together(run, commands),
    masters: cluster ? () => clusterMasters(client) : () => Promise.resolve([{ label: addresses, run }]),
    subscriber: (clock, random) => glideSubscriber(client, cluster)?.(clock, random),
  }
}

export function looksLikeGlide(value: unknown): value is GlideClient & GlideLike {
  return hasMethods(value, 'customCommand', 'invokeScript', 'exec', 'close')
}

/** Replicas are asked for reads only, but a lock that is read from a replica (who holds it?) may be out of date. */
function refusedOption(client: GlideClient): string | undefined {
  const config = property(client, 'config')
  const from = text(config, 'readFrom') ?? 'primary'
  if (from === 'primary' && property(config, 'readOnly') !== true) return undefined
  return "its readFrom would ask replicas, which lag behind: pass a client with readFrom: 'primary'"
}

function sender(client: GlideClient, route?: unknown): Send {
  const options = route === undefined ? { decoder: DECODER_STRING } : { decoder: DECODER_STRING, route }
  return async (command) => plain(flat(await client.customCommand([...command], options)))
}

function routeOf(key: string | undefined): unknown {
  return key === undefined ? 'randomNode' : { type: 'primarySlotKey', key }
}

/** GLIDE hands out maps as lists of { key, value }. */
function flat(reply: unknown): unknown {
  if (!Array.isArray(reply)) return reply
  return reply.flatMap((item: unknown) => {
    const isEntry = typeof item === 'object' && item !== null && 'key' in item && 'value' in item
    return isEntry ? [item.key, flat(item.value)] : [flat(item)]
  })
}

async function clusterMasters(client: GlideClient): Promise<readonly RedisMaster[]> {
  const ranges = await sender(client, 'randomNode')(['CLUSTER', 'SLOTS'])
  const masters = new Map<string, RedisMaster>()
  for (const range of Array.isArray(ranges) ? ranges : []) {
    const [host, port]: unknown[] = Array.isArray(range) && Array.isArray(range[2]) ? range[2] : []
    const label = `${String(host)}:${String(port)}`
    masters.set(label, { label, run: sender(client, { type: 'routeByAddress', host, port }) })
  }
  return [...masters.values()]
}

function serverOf(client: GlideClient): string | undefined {
  const config = property(client, 'config')
  const addresses = property(config, 'addresses')
  return Array.isArray(addresses) ? `${addressesOf(client)}/${text(config, 'databaseId') ?? 0}` : undefined
}

function addressesOf(client: GlideClient): string {
  const addresses = property(property(client, 'config'), 'addresses')
  if (!Array.isArray(addresses)) return 'valkey-glide'
  return addresses.map((address) => `${text(address, 'host')}:${text(address, 'port') ?? 6379}`).join(',')
}
