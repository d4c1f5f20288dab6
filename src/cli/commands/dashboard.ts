import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { given } from '../../arguments.ts'
import { dashboard as createDashboard, type DashboardOptions } from '../../dashboard/index.ts'
import type { Options } from '../command-line.ts'
import { openStore, type Store } from '../engines/store.ts'
import { EXIT, inWordsOf, usage, type Failure } from '../exit-codes.ts'
import { isLoopback, LIMITS, listen, listenAddress, urlOf, type ListenAddress } from '../listening.ts'
import { keepSecret, withoutSecrets, type Output } from '../output.ts'
import { withSeveralLocks, type Call, type Session } from '../session.ts'
import { fromEnvironment, storeUrl } from '../settings.ts'

/** RING on a telephone. */
const DEFAULT_PORT = 7464
/** Open pages, and as many connections again for what they ask besides. */
const STREAMS = 500
const MOST_CONNECTIONS = 2 * STREAMS

/** Serves the page with all leases until it is interrupted. */
export async function dashboard(call: Call): Promise<number> {
  const { line, config, output } = call
  const address = listenAddress(line.options.text('listen') ?? String(DEFAULT_PORT))
  const options = optionsOf(line.options, output)
  if (isOpen(options) && !isLoopback(address.host)) throw withoutToken(address.host)
  const url = storeUrl(line.options, config, output)
  if (url === undefined) return serve(call, address, options)
  const store = await openStore(url)
  try {
    return await serve(call, address, options, store)
  } finally {
    await store.close()
  }
}

/** Without a token: for this machine only. */
function isOpen({ readToken, writeToken }: DashboardOptions): boolean {
  return readToken === undefined && writeToken === undefined
}

function serve(call: Call, where: ListenAddress, options: DashboardOptions, store?: Store): Promise<number> {
  const { line, output, signals } = call
  return withSeveralLocks(call, async (sessions) => {
    const [[name, only]] = [...sessions] as [[string | undefined, Session]]
    const source = name === undefined ? only.locks : mapped(sessions, ({ locks }) => locks)
    await using page = inWordsOf(wordsFor(line.options), () =>
      createDashboard(source, {
        ...options,
        ...given({ runs: store?.runs }),
        streams: STREAMS,
        redact: withoutSecrets,
        onAudit: (entry) => output.object({ audit: entry }, process.stderr),
      }),
    )
    const server = createServer(LIMITS, page.listener)
    server.maxConnections = MOST_CONNECTIONS
    const bound = await listen(server, where)
    try {
      // What a name such as localhost stands for is known only now.
      if (isOpen(options) && !isLoopback(bound.address)) throw withoutToken(`${where.host}, which is ${bound.address},`)
      const at = `${urlOf(bound)}${options.path ?? ''}`
      const address = at.endsWith('/') ? at : `${at}/`
      const writable = options.writeToken !== undefined
      const shown = name === undefined ? { engine: only.url } : { engines: mapped(sessions, ({ url }) => url) }
      if (output.json) output.object({ url: address, ...shown, ...given({ store: store?.url }), writable })
      else output.line(`the dashboard of ${[...sessions.values()].map(({ url }) => url).join(', ')} is at ${address}`)
      if (!signals.interrupted.aborted) await once(signals.interrupted, 'abort')
    } finally {
      // First the streams, which never end by themselves.
      await page.close()
      server.closeAllConnections()
      server.close()
    }
    return EXIT.ok
  })
}

function mapped<T>(
  sessions: ReadonlyMap<string | undefined, Session>,
  what: (session: Session) => T,
): Record<string, T> {
  return Object.fromEntries([...sessions].map(([name, session]) => [name, what(session)]))
}

/** Where what the library calls so came from. */
function wordsFor(options: Options): Record<string, string> {
  return {
    readToken: options.has('token-file') ? '--token-file' : 'RINGFENCE_DASHBOARD_TOKEN',
    writeToken: options.has('write-token-file') ? '--write-token-file' : 'RINGFENCE_DASHBOARD_WRITE_TOKEN',
    'origins[0]': '--origin',
    path: '--path',
    history: '--history',
  }
}

function optionsOf(options: Options, output: Output): DashboardOptions {
  const origin = options.text('origin')
  const history = options.text('history')
  if (history !== undefined) output.explain(`history: ${history}, from --history`)
  return given({
    readToken: tokenOf(options, output, 'token-file', 'RINGFENCE_DASHBOARD_TOKEN'),
    writeToken: tokenOf(options, output, 'write-token-file', 'RINGFENCE_DASHBOARD_WRITE_TOKEN'),
    origins: origin === undefined ? undefined : [origin],
    path: options.text('path'),
    history,
  })
}

function tokenOf(options: Options, output: Output, option: string, variable: string): string | undefined {
  const file = options.text(option)
  const token = file === undefined ? fromEnvironment(variable) : readToken(file, option)
  if (token === undefined) return undefined
  keepSecret(token)
  output.explain(`${option.replace('-file', '')}: ***, from ${file === undefined ? variable : `--${option} ${file}`}`)
  return token
}

function readToken(file: string, option: string): string {
  let token: string
  try {
    token = readFileSync(file, 'utf8').trim()
  } catch (error) {
    throw usage(`--${option}: cannot be read: ${(error as Error).message}`, MAKE_TOKEN)
  }
  if (token === '') throw usage(`--${option}: expected a token in ${file}, got an empty file`, MAKE_TOKEN)
  return token
}

const MAKE_TOKEN = 'openssl rand -hex 32 > FILE makes one'

function withoutToken(host: string): Failure {
  return usage(
    `without a token only this machine may look, but ${host} is open to others`,
    'put a token of 16 or more characters into a file (openssl rand -hex 32 > FILE) and add --token-file FILE',
  )
}
