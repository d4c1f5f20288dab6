import { etcd } from '../../src/engines/etcd/index.ts'
import { startEtcd } from '../../harness/servers/etcd.ts'
import { NOT_UNDONE } from '../courier.ts'
import type { Target } from '../target.ts'
import { ownersIn, seenBy, wordsOf } from '../words.ts'
import { Expiries } from './expiries.ts'
import { ask, carriedFetch, type HttpAnswer, type HttpAsked, type HttpWords } from './http.ts'

const REQUEST_TIMEOUT_MS = 300
const WALL_MS = 1_700_000_000_000
/** The ttl that the server is given for a lease, so that its own clock never ends one. */
const LONG_S = 1_000_000
const ALL = { key: 'AA==', range_end: 'AA==' }

interface Transaction {
  readonly compare?: readonly { readonly create_revision?: string }[]
  readonly success?: readonly { readonly request_put?: { readonly key: string; readonly lease: string } }[]
}

/** Leases in etcd by its JSON gateway. The schedule is the leader's clock: it revokes what nobody has renewed. */
export async function etcdTarget(): Promise<Target> {
  const server = await startEtcd()
  const post = (what: string, body: object): Promise<HttpAnswer> =>
    ask(server.url, { method: 'POST', path: `/v3/${what}`, body: JSON.stringify(body) })
  const expiries = new Expiries((ID) => post('lease/revoke', { ID }))
  const owners = new Map<string, string>()
  return {
    name: 'etcd',
    wrong: { ...seenBy(CHANGES), ...NOT_UNDONE },
    bounds: { ttlMs: [1000, 3000], grainMs: 1000, shared: true, repeats: true, moves: false },
    leastTtlMs: 1000,
    looksFirst: true,
    lateMs: 8 * REQUEST_TIMEOUT_MS,
    async begin() {
      await expiries.clear()
      await post('kv/deleterange', ALL)
      owners.clear()
      return WALL_MS
    },
    clock: (wallMs) => expiries.pass(wallMs),
    open({ courier, process, wrong }) {
      const change = CHANGES.find(({ name }) => name === wrong)?.change ?? ((_path, body) => body)
      const fetch = carriedFetch(courier, {
        inWords: (asked) => inWords(asked, owners),
        visit: (asked) => visit({ ...asked, body: change(asked.path, asked.body) }, server.url, expiries),
        waits: ({ path }) => path === '/v3/watch',
      })
      return etcd(server.url, { clock: process, requestTimeout: REQUEST_TIMEOUT_MS, fetch })
    },
    async left() {
      const { text } = await post('kv/range', ALL)
      const { kvs = [] } = JSON.parse(text) as { kvs?: { key: string; lease: string }[] }
      return kvs.map(({ key, lease }) => {
        const [, resource = '', owner = ''] = decoded(key).split('/')
        return { resource, owner, leftMs: expiries.of(lease)?.leftMs ?? Infinity }
      })
    },
    async [Symbol.asyncDispose]() {
      await server.stop()
    },
  }
}

function decoded(text: string): string {
  return Buffer.from(text, 'base64').toString()
}

function inWords({ path, body }: HttpAsked, owners: Map<string, string>): HttpWords {
  const asked = JSON.parse(body) as Transaction & { readonly ID?: string }
  if (path !== '/v3/kv/txn') {
    const what = path === '/v3/lease/revoke' ? 'release' : path.replace('/v3/', '')
    return { words: [{ what, owner: owners.get(String(asked.ID)) ?? '' }], replies: () => [[]] }
  }
  const puts = (asked.success ?? []).flatMap(({ request_put: put }) => put ?? [])
  const named = ownersIn(puts.map(({ key }) => decoded(key)).join(' '))
  for (const { lease, key } of puts) owners.set(lease, ownersIn(decoded(key))[0] ?? '')
  if (puts.length === 0) return { words: wordsOf('look', []), replies: () => [[]] }
  const isNew = asked.compare!.every(({ create_revision: revision }) => revision === '0')
  return { words: wordsOf(isNew ? 'acquire' : 'extend', named), replies: (answer) => [isDone(answer) ? 1 : [0]] }
}

function isDone({ text }: HttpAnswer): boolean {
  return (JSON.parse(text) as { succeeded?: boolean }).succeeded === true
}

/** On the server, whose leases are long and have the time of the schedule. */
async function visit(asked: HttpAsked, url: string, expiries: Expiries): Promise<HttpAnswer> {
  if (!asked.path.startsWith('/v3/lease/')) return ask(url, asked)
  const { ID, TTL, ...rest } = JSON.parse(asked.body) as { ID: string; TTL?: string }
  const long = TTL === undefined ? {} : { TTL: String(LONG_S) }
  const answer = await ask(url, { ...asked, body: JSON.stringify({ ...rest, ID, ...long }) })
  const isDone = answer.status === 200
  if (asked.path === '/v3/lease/grant' && isDone) expiries.begins(ID, Number(TTL) * 1000)
  if (asked.path === '/v3/lease/keepalive' && isDone) expiries.renewed(ID)
  if (asked.path === '/v3/lease/revoke') expiries.gone(ID)
  const time = expiries.of(ID)
  if (asked.path !== '/v3/lease/timetolive' || time === undefined) return answer
  const told = { TTL: String(Math.floor(time.leftMs / 1000)), grantedTTL: String(time.ttlMs / 1000) }
  return { ...answer, text: JSON.stringify({ ...(JSON.parse(answer.text) as object), ...told }) }
}

/** Known bugs, as changes of a request, and what sees them. */
const CHANGES: readonly {
  readonly name: string
  readonly seenBy: string
  readonly change: (path: string, body: string) => string
}[] = [
  {
    name: 'a grant that does not look at the holder',
    seenBy: 'exclusion',
    change: (path, body) =>
      path === '/v3/kv/txn' && body.includes('request_put') ? body.replace(/"compare":\[.*?\]/, '"compare":[]') : body,
  },
  {
    name: 'a lease of half of the time',
    seenBy: 'exclusion',
    change: (_path, body) => body.replace(/"TTL":"(\d+)"/, (_, s: string) => `"TTL":"${Number(s) / 2}"`),
  },
]
