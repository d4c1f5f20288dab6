import type { IncomingMessage, ServerResponse } from 'node:http'
import { shown } from '../duration.ts'
import type { Engine } from '../engine.ts'
import type { Observer } from '../events.ts'
import { shortestTtlMs } from '../lease.ts'
import type { Locks } from '../locks.ts'
import type { NamedEngine } from './server/engines.ts'
import { Handler } from './server/handler.ts'
import { serve } from './server/node.ts'
import { dashboardSettings, type DashboardOptions } from './server/options.ts'

export type { AuditEntry } from './server/audit.ts'
export type { DashboardOptions, Role, Verdict } from './server/options.ts'

/** The dashboard, as handlers for a server of your own. */
export interface Dashboard extends AsyncDisposable {
  /**
   * Handles a request to the page or to what is behind it. Without tokens and without an auth hook it must know where the
   * request comes from, and answers to its own machine alone.
   */
  readonly fetch: (request: Request, from?: { readonly remoteAddress?: string }) => Promise<Response>
  /** The same for `http.createServer` and Express; the mount path is that of the options. */
  readonly listener: (request: IncomingMessage, response: ServerResponse, next?: (error: unknown) => void) => void
  /**
   * For `createLocks(engine, { observe })`: what locks of this process do is then in the history without a gap. Of several
   * engines it is the first one's; `observerOf` has the others'.
   */
  readonly observe: Observer
  /** The same for the engine of this name. */
  readonly observerOf: (name: string) => Observer
  /** Open pages, looks at the engines so far, and leases as of the last ones. */
  readonly counts: { readonly streams: number; readonly looks: number; readonly leases: number }
  /** Ends all open pages and all looking; the engines stay open. */
  close(): Promise<void>
}

/** The doctor judges for leases of this ttl, unless locks are given, which have their own. */
const USUAL_TTL_MS = 30_000

/**
 * A web page with every lease on an engine, to be mounted in a server of your own. Several engines are given by name, as in
 * `dashboard({ orders: redis(client), reports: postgres(pool) })`, and the page shows one at a time and how the others are.
 */
export function dashboard(
  source: Engine | Locks | Readonly<Record<string, Engine | Locks>>,
  options: DashboardOptions = {},
): Dashboard {
  const handler = new Handler(namedEngines(source), dashboardSettings(options))
  const { engines } = handler
  const fetch: Dashboard['fetch'] = (request, from) => handler.fetch(request, addressOf(from))
  const close = (): Promise<void> => engines.close()
  return {
    fetch,
    listener: (incoming, outgoing, next) => {
      const failed = (error: unknown): void => {
        // Only the user's own hook can have failed: Express has a place for that, a plain server a warning.
        if (next !== undefined) return next(error)
        process.emitWarning(error instanceof Error ? error : String(error))
        if (outgoing.headersSent) outgoing.destroy()
        else outgoing.writeHead(500).end()
      }
      serve(fetch, incoming, outgoing).catch(failed)
    },
    observe: (event) => handler.heard(engines.all[0]!.key, event),
    observerOf: (name) => {
      if (engines.find(name) === undefined) {
        const known = engines.all.map(({ key }) => key).join(', ')
        throw new TypeError(`name: expected one of ${known}, got ${shown(name)}`)
      }
      return (event) => handler.heard(name, event)
    },
    get counts() {
      return engines.counts
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** What an engine may be called: it stands in addresses and in labels of metrics. */
const NAME = /^[\w.-]{1,40}$/

function namedEngines(source: unknown): NamedEngine[] {
  const single = engineOf(source)
  if (single !== undefined) return [namedEngine(single.name, single, source)]
  const prototype: unknown = typeof source === 'object' && source !== null ? Object.getPrototypeOf(source) : undefined
  if (prototype !== Object.prototype && prototype !== null)
    throw new TypeError(`engine: expected an engine, locks, or several of them by name, got ${shown(source)}`)
  const entries = Object.entries(source as object)
  if (entries.length === 0) throw new TypeError('engine: expected at least one engine, got none')
  return entries.map(([name, one]: [string, unknown]) => {
    if (!NAME.test(name))
      throw new TypeError(`engine: expected a name of 1 to 40 letters, digits, '_', '.' or '-', got ${shown(name)}`)
    const engine = engineOf(one)
    if (engine === undefined) throw new TypeError(`engine ${name}: expected an engine or locks, got ${shown(one)}`)
    return namedEngine(name, engine, one)
  })
}

function namedEngine(key: string, engine: Engine, source: unknown): NamedEngine {
  const { limits } = engine
  const ttlMs = Math.min(Math.max(USUAL_TTL_MS, shortestTtlMs(limits)), limits.maxTtlMs)
  return { key, engine, check: () => (source === engine ? engine.check(ttlMs) : (source as Locks).check()) }
}

function engineOf(source: unknown): Engine | undefined {
  if (isEngine(source)) return source
  const locks = source as Locks | null | undefined
  return typeof locks?.acquire === 'function' && isEngine(locks.engine) ? locks.engine : undefined
}

function isEngine(value: unknown): value is Engine {
  return typeof (value as Engine | null | undefined)?.inspect === 'function' && 'limits' in (value as object)
}

/** A server that mounts `fetch` may call it with something else as the second argument, which then says nothing. */
function addressOf(from: { readonly remoteAddress?: unknown } | undefined): string | undefined {
  const address = from?.remoteAddress
  return typeof address === 'string' ? address : undefined
}
