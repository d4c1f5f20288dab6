import { given } from '../../arguments.ts'
import type { InLine, LeaseInfo } from '../../engine.ts'
import { together } from '../shared/together.ts'
import { base64 } from '../shared/http/text.ts'
import { rangeAnswer, rangeFields, type EtcdKeyValue } from './client.ts'
import type { EtcdCall } from './engine.ts'
import { etcdFailure } from './errors.ts'
import { parseValue } from './keys.ts'

/** How many keys one request reads. An inspection must not hold up the locks. */
const PAGE = 500
/** How many etcd leases are asked about at a time. */
const ASKED_AT_ONCE = 8

export async function* inspectEtcd(call: EtcdCall, resource?: string): AsyncIterable<LeaseInfo> {
  try {
    let group: { resource: string; places: EtcdKeyValue[] } | undefined
    for await (const page of pages(call, resource)) {
      const whole: EtcdKeyValue[][] = []
      for (const place of page) {
        const name = call.keys.parse(place.key)?.resource
        if (name === undefined) continue
        if (name === group?.resource) group.places.push(place)
        else {
          if (group !== undefined) whole.push(group.places)
          group = { resource: name, places: [place] }
        }
      }
      yield* await shown(call, whole)
    }
    if (group !== undefined) yield* await shown(call, [group.places])
  } catch (error) {
    throw etcdFailure(error, resource === undefined ? [] : [resource])
  }
}

/** In the order of keys, so that those of one folder follow each other. All pages are of one revision. */
async function* pages({ client, keys, timeoutMs }: EtcdCall, resource?: string): AsyncIterable<EtcdKeyValue[]> {
  const range = rangeFields(resource === undefined ? keys.all : keys.folder(resource))
  let { key } = range
  let revision = '0'
  for (;;) {
    const answer = await client.call('kv/range', { ...range, key, revision, limit: String(PAGE) }, timeoutMs)
    const { header, found, more } = rangeAnswer(answer)
    yield found
    if (!more) return
    if (revision === '0') revision = String(header.revision)
    key = base64(`${found.at(-1)!.key}\0`)
  }
}

async function shown(call: EtcdCall, groups: readonly EtcdKeyValue[][]): Promise<LeaseInfo[]> {
  const holders = groups.flatMap((places) => holdersAmong(call, places))
  const infos = await together(holders, ASKED_AT_ONCE, async ({ place, line }): Promise<LeaseInfo | undefined> => {
    const { resource, owner, shared } = call.keys.parse(place.key)!
    const { sinceMs } = parseValue(place.value)
    const bound = place.lease !== '0'
    const remainingMs = bound ? await call.steps.remainingMs(place.lease, call.timeoutMs) : undefined
    // The lease has ended by now.
    if (bound && remainingMs === undefined) return undefined
    return {
      resource,
      owner,
      token: place.createRevision,
      remainingMs,
      ...(shared ? { shared } : {}),
      // Compares the clocks of two machines, because there is no other way to know.
      ...(sinceMs === undefined ? {} : { heldMs: Math.max(0, call.clock.wallMs() - sinceMs) }),
      waiters: line.length,
      ...(line.length > 0 ? { line } : {}),
    }
  })
  return infos.filter((info) => info !== undefined)
}

/** The first place, or all shared ones up to the first one that is not. The others are in line. */
function holdersAmong(
  { keys }: EtcdCall,
  places: EtcdKeyValue[],
): { readonly place: EtcdKeyValue; readonly line: readonly InLine[] }[] {
  places.sort((a, b) => Number(a.createRevision - b.createRevision))
  const writer = places.findIndex(({ key }) => !keys.parse(key)!.shared)
  const count = writer < 0 ? places.length : Math.max(writer, 1)
  const line = places.slice(count).map(({ key, value }): InLine => {
    const { waitsSinceMs: since } = parseValue(value)
    return { owner: keys.parse(key)!.owner, ...given({ since }) }
  })
  return places.slice(0, count).map((place) => ({ place, line }))
}
