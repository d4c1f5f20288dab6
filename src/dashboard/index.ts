import type { IncomingMessage, ServerResponse } from 'node:http'
import { shown } from '../duration.ts'
import type { Engine } from '../engine.ts'
import type { Observer } from '../events.ts'
import { shortestTtlMs } from '../lease.ts'
import type { Locks } from '../locks.ts'
import { Handler } from './server/handler.ts'
import { serve } from './server/node.ts'
import { dashboardSettings, type DashboardOptions } from './server/options.ts'

export type { AuditEntry } from './server/audit.ts'
export type { DashboardOptions, Role, Verdict } from './server/options.ts'

export interface Dashboard extends AsyncDisposable {
  /**
   * Handles a request to the page or to what is behind it. Without tokens and without an auth hook it must know where the
   * request comes from, and answers to its own machine alone.
   */
  readonly fetch: (request: Request, from?: { readonly remoteAddress?: string }) => Promise<Response>
  /** The same for `http.createServer` and Express; the mount path is that of the options. */
  readonly listener: (request: IncomingMessage, response: ServerResponse, next?: (error: unknown) => void) => void
  /** For `createLocks(engine, { observe })`: what locks of this process do is then in the history without a gap. */
  readonly observe: Observer
  /** Open pages, looks at the engine so far, and leases as of the last one. */
  readonly counts: { readonly streams: number; readonly looks: number; readonly leases: number }
  /** Ends all open pages and all looking; the engine stays open. */
  close(): Promise<void>
}

/** The doctor judges for leases of this ttl, unless locks are given, which have their own. */
const USUAL_TTL_MS = 30_000

/** A web page with every lease on an engine, to be mounted in a server of your own. */
export function dashboard(source: Engine | Locks, options: DashboardOptions = {}): Dashboard {
  const engine = engineOf(source)
  const settings = dashboardSettings(options)
  const { limits } = engine
  const ttlMs = Math.min(Math.max(USUAL_TTL_MS, shortestTtlMs(limits)), limits.maxTtlMs)
  const handler = new Handler(engine, () => (source === engine ? engine.check(ttlMs) : source.check(ttlMs)), settings)
  const fetch: Dashboard['fetch'] = (request, from) => handler.fetch(request, addressOf(from))
  const close = (): Promise<void> => handler.pages.close()
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
    observe: (event) => handler.heard(event),
    get counts() {
      return handler.pages.counts
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

function engineOf(source: unknown): Engine {
  const engine = isEngine(source) ? source : (source as Locks | undefined)?.engine
  if (!isEngine(engine)) throw new TypeError(`engine: expected an engine or locks, got ${shown(source)}`)
  return engine
}

function isEngine(value: unknown): value is Engine {
  return typeof (value as Engine | null | undefined)?.inspect === 'function' && 'limits' in (value as object)
}

/** Whoever mounts `fetch` may be called with something else as the second argument, which then says nothing. */
function addressOf(from: { readonly remoteAddress?: unknown } | undefined): string | undefined {
  const address = from?.remoteAddress
  return typeof address === 'string' ? address : undefined
}
