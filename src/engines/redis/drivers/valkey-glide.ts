import type { RedisClient, RedisMaster } from '../client.ts'
import { describe, hasMethods, property, text } from './expected.ts'
import { plain } from './reply.ts'
import { glideSubscriber } from './valkey-glide-lines.ts'

/** What is used of a GLIDE `GlideClient` or `GlideClusterClient`. */
export interface GlideClient {
  customCommand(args: string[], options?: object): Promise<unknown>
  close(): void
}

/** Any client of GLIDE, of whatever version; what is used of it is looked at when it comes. */
export interface GlideLike {
  customCommand(...args: never[]): unknown
  invokeScript(...args: never[]): unknown
  close(...args: never[]): unknown
}

/** `Decoder.String` of GLIDE: whatever default decoder the user has set, our replies are strings. */
const DECODER_STRING = 1

/** Wraps a GLIDE `GlideClient` or `GlideClusterClient`. */
export function valkeyGlide(client: GlideLike): RedisClient {
  if (!looksLikeGlide(client)) {
    throw new TypeError(
      `valkeyGlide(client): expected a GlideClient or GlideClusterClient of @valkey/valkey-glide, got ${describe(client)}`,
    )
  }
  const refused = refusedOption(client)
  if (refused !== undefined) throw new TypeError(`valkeyGlide(client): ${refused}`)
  const cluster = isCluster(client)
  const addresses = addressesOf(client)
  const run = sender(client)
  return {
    driver: 'valkey-glide',
    identity: client,
    label: cluster ? `cluster(${addresses})` : addresses,
    cluster,
    unusable: () => (property(client, 'isClosed') === true ? 'it is closed' : undefined),
    run: cluster ? (command, key) => sender(client, routeOf(key))(command) : run,
    runTogether: (commands, key) => together(sender(client, cluster ? routeOf(key) : undefined), commands),
    masters: cluster ? () => clusterMasters(client) : () => Promise.resolve([{ label: addresses, run }]),
    subscriber: () => glideSubscriber(client, cluster),
  }
}

export function looksLikeGlide(value: unknown): value is GlideClient & GlideLike {
  return hasMethods(value, 'customCommand', 'invokeScript', 'exec', 'close')
}

/** Only a Cluster has shard channels. */
function isCluster(client: GlideClient): boolean {
  return hasMethods(client, 'pubsubShardChannels')
}

/** Replicas are asked for reads alone, but a lock that is read from one (who holds it?) may be an old one. */
function refusedOption(client: GlideClient): string | undefined {
  const config = property(client, 'config')
  const from = text(config, 'readFrom') ?? 'primary'
  if (from === 'primary' && property(config, 'readOnly') !== true) return undefined
  return "its readFrom would ask replicas, which lag behind: pass a client with readFrom: 'primary'"
}

type Send = (command: readonly string[]) => Promise<unknown>

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

/**
 * One after the other on GLIDE's one connection to a server. A Batch would need its class, which is the driver's. Should
 * GLIDE reconnect in between, WAIT would count on a connection that wrote nothing and praise every replica, so the
 * connection's id must be the same before and after.
 */
async function together(send: Send, commands: readonly (readonly string[])[]): Promise<readonly unknown[]> {
  const replies: unknown[] = []
  const before = await send(['CLIENT', 'ID'])
  for (const command of commands) replies.push(await send(command))
  if ((await send(['CLIENT', 'ID'])) !== before) throw new Error('the connection was lost between two commands')
  return replies
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

function addressesOf(client: GlideClient): string {
  const addresses = property(property(client, 'config'), 'addresses')
  if (!Array.isArray(addresses)) return 'valkey-glide'
  return addresses.map((address) => `${text(address, 'host')}:${text(address, 'port') ?? 6379}`).join(',')
}
