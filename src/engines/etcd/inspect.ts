import type { Clock } from '../../clock.ts'
import type { LeaseInfo } from '../../engine.ts'
import { EngineError } from '../../errors.ts'
import { reasonOf } from '../http/endpoints.ts'
import { together } from '../http/together.ts'
import { base64, rangeAnswer, within, type Gateway, type KeyValue } from './gateway.ts'
import { parseValue, type Keys } from './keys.ts'
import type { EtcdLeases } from './leases.ts'

interface InspectPlan {
  readonly gateway: Gateway
  readonly leases: EtcdLeases
  readonly keys: Keys
  readonly clock: Clock
  readonly timeoutMs: number
}

/** Keys of one question, and questions about leases at a time: a look must not hold up the locks. */
const PAGE = 500
const ASKED_AT_ONCE = 8

export async function* inspectEtcd(plan: InspectPlan, resource?: string): AsyncIterable<LeaseInfo> {
  try {
    let group: { resource: string; places: KeyValue[] } | undefined
    for await (const page of pages(plan, resource)) {
      const whole: KeyValue[][] = []
      for (const place of page) {
        const name = plan.keys.parse(place.key)?.resource
        if (name === undefined) continue
        if (name === group?.resource) group.places.push(place)
        else {
          if (group !== undefined) whole.push(group.places)
          group = { resource: name, places: [place] }
        }
      }
      yield* await shown(plan, whole)
    }
    if (group !== undefined) yield* await shown(plan, [group.places])
  } catch (error) {
    throw new EngineError(`etcd: ${reasonOf(error)}`, resource === undefined ? [] : [resource], { cause: error })
  }
}

/** In the order of keys, so that those of one folder follow each other; all of one revision. */
async function* pages({ gateway, keys, timeoutMs }: InspectPlan, resource?: string): AsyncIterable<KeyValue[]> {
  const range = within(resource === undefined ? keys.all : keys.folder(resource))
  let { key } = range
  let revision = '0'
  for (;;) {
    const answer = await gateway.call('kv/range', { ...range, key, revision, limit: String(PAGE) }, timeoutMs)
    const { header, found, more } = rangeAnswer(answer)
    yield found
    if (!more) return
    if (revision === '0') revision = String(header.revision)
    key = base64(`${found.at(-1)!.key}\0`)
  }
}

async function shown(plan: InspectPlan, groups: readonly KeyValue[][]): Promise<LeaseInfo[]> {
  const infos = await together(groups, ASKED_AT_ONCE, async (places): Promise<LeaseInfo | undefined> => {
    const first = places.reduce((a, b) => (b.createRevision < a.createRevision ? b : a))
    const { resource, owner } = plan.keys.parse(first.key)!
    const { sinceMs } = parseValue(first.value)
    const bound = first.lease !== '0'
    const remainingMs = bound ? await plan.leases.remainingMs(first.lease, plan.timeoutMs) : undefined
    // Over by now.
    if (bound && remainingMs === undefined) return undefined
    return {
      resource,
      owner,
      token: first.createRevision,
      remainingMs,
      // By two machines' clocks, as there is no other way to know.
      ...(sinceMs === undefined ? {} : { heldMs: Math.max(0, plan.clock.wallMs() - sinceMs) }),
      waiters: places.length - 1,
    }
  })
  return infos.filter((info) => info !== undefined)
}
