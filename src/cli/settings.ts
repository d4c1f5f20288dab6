import { readFileSync } from 'node:fs'
import type { Options } from './command-line.ts'
import type { Config } from './config.ts'
import { usage } from './exit-codes.ts'
import { keepSecret, SECRET_NAMES, SHORTEST_WORD, type Output } from './output.ts'

/** A value, and where it came from: messages name that. */
export interface Setting {
  readonly text: string
  readonly source: string
  /** The option that names the file it was read from. */
  readonly option?: readonly [name: string, path: string]
}

/** An option of the command line, or else the same of a config file. */
export function setting(
  name: 'ttl' | 'wait' | 'grace' | 'label',
  options: Options,
  config: Config,
): Setting | undefined {
  return from(`--${name}`, options.text(name)) ?? config.setting(name)
}

/**
 * For --verbose: which config files were read, and where the settings that several commands have came from. URLs explain themselves, as
 * do the settings of the dashboard alone.
 */
export function explain(options: Options, config: Config, output: Output): void {
  output.explain(config.paths.length === 0 ? 'no config file' : `config files: ${config.paths.join(', ')}`)
  for (const name of ['ttl', 'wait', 'grace', 'label'] as const) {
    const given = setting(name, options, config)
    if (given !== undefined) output.explain(`${name}: ${given.text}, from ${given.source}`)
  }
  const required = requirement(config)
  if (required !== undefined) output.explain(`requireEngine: ${required.text}, from ${required.source}`)
}

function from(source: string, text: string | undefined): Setting | undefined {
  return text === undefined ? undefined : { text, source }
}

const REQUIRE_ENGINE = 'RINGFENCE_REQUIRE_ENGINE'

function requirement(config: Config): Setting | undefined {
  return from(REQUIRE_ENGINE, process.env[REQUIRE_ENGINE]) ?? config.requireEngine()
}

/** Where an engine must be named, a lost variable is an error and not a lock of this machine alone. */
function assertLocalAllowed(config: Config): void {
  const variable = fromEnvironment(REQUIRE_ENGINE)
  if (variable !== undefined && !/^(0|1|true|false|yes|no)$/i.test(variable))
    throw usage(`${REQUIRE_ENGINE}: expected 1 or 0, got '${variable}'`)
  const { text, source } = requirement(config) ?? { text: 'no', source: '' }
  if (!/^(1|true|yes)$/i.test(text)) return
  const read = config.paths.length === 0 ? 'no config file was found' : `read: ${config.paths.join(', ')}`
  throw usage(
    `no engine is named, and a lock of this machine alone is not allowed here (${source}; ${read})`,
    'set RINGFENCE_URL (sudo and cron drop it), or name the engine in /etc/ringfence/config.json; --engine file:/PATH asks for a local lock',
  )
}

/** The engine's URL, and every secret in it known to the output; undefined for the embedded engine. */
export function engineUrl(options: Options, config: Config, output: Output): Setting | undefined {
  const given = from('--engine', options.text('engine'))
  const file = options.text('engine-file')
  if (given !== undefined && file !== undefined) throw usage('--engine and --engine-file exclude each other')
  const configured = config.engine()
  const url =
    given ??
    fromOptionFile(file) ??
    from('RINGFENCE_URL', fromEnvironment('RINGFENCE_URL')) ??
    fromFile(fromEnvironment('RINGFENCE_URL_FILE')) ??
    configured.url ??
    fromFile(configured.file)
  if (url === undefined) {
    assertLocalAllowed(config)
    output.explain('engine: a file of this machine, the default: no option, variable or config file names one')
    return undefined
  }
  return explained(url, output)
}

function explained(url: Setting, output: Output): Setting {
  const hides = noteSecrets(url.text)
  if (hides && url.source === '--engine') hideArguments(output, 'RINGFENCE_URL or a file (--engine-file)')
  output.explain(`engine: ${redacted(url.text)}, from ${url.source}`)
  return url
}

/** Several engines, each by a name: `NAME=URL`, or the scheme of the URL. Undefined: at most one is given, by no name. */
export function engineUrls(options: Options, output: Output): ReadonlyMap<string, Setting> | undefined {
  const given = options.texts('engine').map((text) => /^(?:([\w.-]{1,40})=)?(.*)$/s.exec(text)!)
  const [first] = given
  if (first === undefined || (given.length === 1 && first[1] === undefined)) return undefined
  if (options.has('engine-file')) throw usage('--engine and --engine-file exclude each other')
  const named = new Map<string, Setting>()
  for (const [, name, url = ''] of given) {
    const scheme = /^[a-z][a-z0-9+]*(?=:)/i.exec(url)?.[0].toLowerCase().replace('+', '-') ?? 'engine'
    if (name !== undefined && named.has(name)) throw usage(`--engine: two are called ${name}`)
    let key = name ?? scheme
    for (let number = 2; named.has(key); number++) key = `${scheme}-${number}`
    named.set(key, explained({ text: url, source: '--engine' }, output))
  }
  return named
}

/** The URL of the store of runs, and every secret in it known to the output; undefined where none is named. */
export function storeUrl(options: Options, config: Config, output: Output): Setting | undefined {
  const given = from('--store', options.text('store'))
  const url = given ?? from('RINGFENCE_STORE', fromEnvironment('RINGFENCE_STORE')) ?? config.setting('store')
  if (url === undefined) return undefined
  if (noteSecrets(url.text) && url === given) hideArguments(output, 'RINGFENCE_STORE')
  output.explain(`store: ${redacted(url.text)}, from ${url.source}`)
  return url
}

/** A URL as it may be shown. */
export function redacted(url: string): string {
  return withoutPasswords(url).replace(SECRET_PARAMETER, '$1***').replace(MECHANISM, '$1***').replace(MISPLACED, '***')
}

function withoutPasswords(url: string): string {
  const several = severalLogins(url)
  if (several !== undefined) return several.shown
  const { before, login, after } = partsOf(url)
  const [user, password] = splitOnce(login, ':')
  const shownLogin = password === undefined ? login : `${user}:***`
  return `${before}${shownLogin}${after}`
}

/** How the parameters end by which URLs carry a secret. */
const SECRET_PARAMETER = new RegExp(`([?&;][\\w.-]*(?:${SECRET_NAMES})=)([^&;#]*)`, 'gi')

/** Of MongoDB: one of these properties may be a secret, whose name is not that of the parameter. */
const MECHANISM = /([?&;]authMechanismProperties=)([^&;#]*)/gi

const SESSION_TOKEN = /AWS_SESSION_TOKEN(?::|%3A)([^,]+?)(?=,|%2C|$)/gi

/** Where a port should be and is none: a password, of a URL whose @ and host were left out. */
const MISPLACED =
  /(?<=^[a-z0-9+.-]*:\/{0,2}(?:[^/?#]*,)?[^/?#@:,[\]]*:)(?!\d+(?:[,/?#]|$))[^/?#@:,[\]]+(?=[,/?#]|$)(?!.*@)/gi

/** Nothing that is printed from now on contains them. True if there are any. */
export function noteSecrets(url: string): boolean {
  const found = severalLogins(url)?.passwords ?? [splitOnce(partsOf(url).login, ':')[1]]
  const inParameters = [...url.matchAll(SECRET_PARAMETER)].map((match) => match[2])
  const inProperties = [...url.matchAll(MECHANISM)].flatMap(([, , text = '']) =>
    [...text.matchAll(SESSION_TOKEN)].map((match) => match[1]),
  )
  // Anything shorter is a part of many a word.
  const misplaced = url.match(MISPLACED)?.filter((text) => text.length >= SHORTEST_WORD) ?? []
  const secrets = [...found, ...inParameters, ...inProperties, ...misplaced].filter(
    (secret) => secret !== undefined && secret !== '',
  ) as string[]
  for (const secret of secrets) keepSecret(secret)
  return secrets.length > 0
}

/** Each host may have a login of its own. Of anything that is not well-formed, nothing can be said about where a password ends. */
function severalLogins(url: string): { shown: string; passwords: string[] } | undefined {
  const [, before = '', hosts = '', after = ''] = /^([a-z0-9+.-]+:\/\/)([^/?#]*)(.*)$/is.exec(url) ?? []
  const pieces = hosts.split(',')
  if (pieces.length < 2 || after.includes('@') || !pieces.every((piece) => WITH_LOGIN.test(piece))) return undefined
  const passwords = pieces.flatMap((piece) => WITH_LOGIN.exec(piece)?.[2] ?? [])
  return { shown: `${before}${pieces.map((piece) => piece.replace(WITH_LOGIN, hidden)).join(',')}${after}`, passwords }
}

const WITH_LOGIN = /^(?:([^:@]*):([^:@]*)@)?((?:\[[0-9a-f:.]+\]|[\w.-]+)(?::\d+)?)$/i

function hidden(piece: string, user: string | undefined, _password: string | undefined, host: string): string {
  return user === undefined ? piece : `${user}:***@${host}`
}

/** Also of a URL that is none: what stands before an @ may be a password, whatever is wrong with the rest. */
function partsOf(url: string): { before: string; login: string; after: string } {
  const [, before = url, login = '', after = ''] = /^((?:[a-z0-9+.-]*:?\/{1,2})?)(.*)(@[^@]*)$/is.exec(url) ?? []
  return { before, login, after }
}

/** Everyone on the machine can read our arguments. From now on they see a title instead; the moment before is theirs. */
function hideArguments(output: Output, instead: string): void {
  process.title = 'ringfence'
  output.say(`a password among the arguments can be seen by \`ps\`; put the URL into ${instead}`)
}

function splitOnce(text: string, by: string): [before: string, after: string | undefined] {
  const at = text.indexOf(by)
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)]
}

function fromOptionFile(path: string | undefined): Setting | undefined {
  const setting = fromFile(path)
  return path === undefined || setting === undefined ? setting : { ...setting, option: ['--engine-file', path] }
}

const ONE_LINE = 'write the URL into it, in one line and nothing else; several servers are one URL: redis://a,b,c'

function fromFile(path: string | undefined): Setting | undefined {
  if (path === undefined) return undefined
  const text = readOrThrow(path, 'the file with the engine’s URL').trim()
  if (text === '') throw usage(`${path}: expected the URL of an engine, got an empty file`, ONE_LINE)
  const lines = text.split('\n').length
  if (lines > 1) throw usage(`${path}: expected one line with the URL of an engine, got ${lines} lines`, ONE_LINE)
  return { text, source: path }
}

export function readOrThrow(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw usage(`${what} cannot be read: ${(error as Error).message}`)
  }
}

/** A variable that is set to nothing is a mistake, as in `RINGFENCE_URL=$REDIS_URL`: every machine would have a lock of its own. */
export function fromEnvironment(name: string): string | undefined {
  const text = process.env[name]
  if (text?.trim() === '') throw usage(`${name} is empty`, 'give it a value, or unset it')
  return text
}
