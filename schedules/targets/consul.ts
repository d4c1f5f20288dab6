import { consul } from '../../src/engines/consul/index.ts'
import { startConsul } from '../../harness/servers/consul.ts'
import { NOT_UNDONE } from '../courier.ts'
import type { Target } from '../target.ts'
import { seenBy, wordsOf } from '../words.ts'
import { Expiries } from './expiries.ts'
import { ask, carriedFetch, type HttpAnswer, type HttpAsked, type HttpWords } from './http.ts'

const REQUEST_TIMEOUT_MS = 300
const WALL_MS = 1_700_000_000_000
/** The ttl that the server is given for a session, so that its own clock never ends one. */
const LONG = '86400s'

interface Operation {
  readonly KV: { readonly Verb: string; readonly Session?: string }
}

/** Leases in Consul. The schedule is the leader's clock: it destroys the sessions that nobody has renewed. */
export async function consulTarget(): Promise<Target> {
  const server = await startConsul()
  const put = (path: string, body = ''): Promise<HttpAnswer> => ask(server.url, { method: 'PUT', path, body })
  const expiries = new Expiries((id) => put(`/v1/session/destroy/${id}`))
  const owners = new Map<string, string>()
  return {
    name: 'consul',
    wrong: { ...seenBy(CHANGES), ...NOT_UNDONE },
    bounds: { ttlMs: [1000, 3000], shared: false, repeats: true },
    leastTtlMs: 1000,
    looksFirst: true,
    lateMs: 8 * REQUEST_TIMEOUT_MS,
    async begin() {
      await expiries.clear()
      await ask(server.url, { method: 'DELETE', path: '/v1/kv/?recurse', body: '' })
      owners.clear()
      return WALL_MS
    },
    clock: (wallMs) => expiries.pass(wallMs),
    open({ courier, process, wrong }) {
      const change = CHANGES.find(({ name }) => name === wrong)?.change ?? ((_path, body) => body)
      const fetch = carriedFetch(courier, {
        inWords: (asked) => inWords(asked, owners),
        visit: (asked) => visit({ ...asked, body: change(asked.path, asked.body) }, server.url, { expiries, owners }),
        waits: ({ path }) => path.includes('wait='),
      })
      const terms = { sessionTtlMin: '1s', lockDelay: 0, requestTimeout: REQUEST_TIMEOUT_MS } as const
      return consul(server.url, { ...terms, clock: process, fetch })
    },
    async left() {
      const { status, text } = await ask(server.url, { method: 'GET', path: '/v1/kv/?recurse', body: '' })
      if (status === 404) return []
      return (JSON.parse(text) as { Key: string; Session?: string }[]).map(({ Key, Session = '' }) => ({
        resource: Key.replace('ringfence/', ''),
        owner: owners.get(Session) ?? '',
        leftMs: expiries.of(Session)?.leftMs ?? Infinity,
      }))
    },
    async [Symbol.asyncDispose]() {
      await server.stop()
    },
  }
}

function inWords({ path, body }: HttpAsked, owners: ReadonlyMap<string, string>): HttpWords {
  const [, , what = '', how = ''] = path.split(/[/?]/)
  if (what !== 'txn') return { words: wordsOf(what === 'kv' ? 'look' : `${what}/${how}`, []), replies: () => [[]] }
  const operations = (JSON.parse(body) as Operation[]).map(({ KV }) => KV)
  const verbs = new Set(operations.map(({ Verb }) => Verb))
  const kind = verbs.has('check-not-exists') ? 'acquire' : verbs.has('lock') ? 'extend' : 'release'
  const session = operations.find(({ Session }) => Session !== undefined)?.Session ?? ''
  return {
    words: [{ what: kind, owner: owners.get(session) ?? '' }],
    replies: ({ status }) => [status === 200 ? 1 : [0]],
  }
}

/** On the server, whose sessions are long and have the time of the schedule. */
async function visit(
  asked: HttpAsked,
  url: string,
  { expiries, owners }: { expiries: Expiries; owners: Map<string, string> },
): Promise<HttpAnswer> {
  const { path, body } = asked
  if (path.startsWith('/v1/session/create')) {
    const session = JSON.parse(body) as { Name: string; TTL: string }
    const answer = await ask(url, { ...asked, body: JSON.stringify({ ...session, TTL: LONG }) })
    const { ID: id } = JSON.parse(answer.text) as { ID: string }
    owners.set(id, session.Name)
    expiries.begins(id, Number.parseFloat(session.TTL))
    return answer
  }
  const answer = await ask(url, asked)
  const id = path.split('/')[4] ?? ''
  if (path.startsWith('/v1/session/renew') && answer.status === 200) expiries.renewed(id)
  if (path.startsWith('/v1/session/destroy')) expiries.gone(id)
  return answer
}

/** Known bugs, as changes of a request, and what sees them. */
const CHANGES: readonly {
  readonly name: string
  readonly seenBy: string
  readonly change: (path: string, body: string) => string
}[] = [
  {
    name: 'a release that does not ask whose it is',
    seenBy: 'exclusion',
    change: (_path, body) => body.replaceAll(/\{"KV":\{"Verb":"check-session"[^}]*\}\},/g, ''),
  },
  {
    name: 'a session of half of the time',
    seenBy: 'exclusion',
    change: (_path, body) => body.replace(/"TTL":"(\d+)ms"/, (_, ms: string) => `"TTL":"${Number(ms) / 2}ms"`),
  },
]
