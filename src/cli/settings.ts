import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync, statSync, type Stats } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { shown } from '../duration.ts'
import type { Options } from './command-line.ts'
import { EXIT, Failure, usage } from './exit-codes.ts'
import { keepSecret, type Output } from './output.ts'

/** What a config file may say; options and environment come first. */
export interface Config {
  readonly engine?: string
  readonly engineFile?: string
  readonly ttl?: string
  readonly wait?: string
  readonly grace?: string
  readonly label?: string
  readonly store?: string
}

const KEYS: readonly (keyof Config)[] = ['engine', 'engineFile', 'ttl', 'wait', 'grace', 'label', 'store']

/**
 * The config file that was named, or else ./ringfence.json, or else the user's own. One that nobody named and that can't be
 * read may be the one that names the engine: it is passed over only where the engine is known without it.
 */
export function readConfig(options: Options, output: Output): Config {
  const named = options.text('config') ?? fromEnvironment('RINGFENCE_CONFIG')
  if (named !== undefined) return parseConfig(named, readOrThrow(named, 'the config file'))
  for (const find of [inCurrentFolder, ofUser]) {
    try {
      const { path, text } = find()
      if (text !== undefined) return parseConfig(path, text)
    } catch (error) {
      if (!(error instanceof Unread) || !namesEngine(options)) throw error
      output.say(`${error.message}; it is passed over, since the engine was named`)
    }
  }
  return {}
}

function namesEngine(options: Options): boolean {
  const { RINGFENCE_URL, RINGFENCE_URL_FILE } = process.env
  return options.has('engine') || options.has('engine-file') || Boolean(RINGFENCE_URL ?? RINGFENCE_URL_FILE)
}

/** A value, and where it came from: messages name that. */
export interface Setting {
  readonly text: string
  readonly source: string
}

/** An option of the command line, or else the same of the config file. */
export function setting(name: 'ttl' | 'wait' | 'grace', options: Options, config: Config): Setting | undefined {
  return from(`--${name}`, options.text(name)) ?? from(`${name}, in the config file`, config[name])
}

function from(source: string, text: string | undefined): Setting | undefined {
  return text === undefined ? undefined : { text, source }
}

/** The engine's URL, and every secret in it known to the output; undefined for the embedded engine. */
export function engineUrl(options: Options, config: Config, output: Output): Setting | undefined {
  const given = from('--engine', options.text('engine'))
  const file = options.text('engine-file')
  if (given !== undefined && file !== undefined) throw usage('--engine and --engine-file exclude each other')
  const url =
    given ??
    fromFile(file) ??
    from('RINGFENCE_URL', fromEnvironment('RINGFENCE_URL')) ??
    fromFile(fromEnvironment('RINGFENCE_URL_FILE')) ??
    from('engine, in the config file', config.engine) ??
    fromFile(config.engineFile)
  if (url === undefined) return undefined
  const hides = noteSecrets(url.text)
  if (hides && url === given) hideArguments(output, 'RINGFENCE_URL or a file (--engine-file)')
  return url
}

/** The URL of the store of runs, and every secret in it known to the output; undefined where none is named. */
export function storeUrl(options: Options, config: Config, output: Output): Setting | undefined {
  const given = from('--store', options.text('store'))
  const url =
    given ??
    from('RINGFENCE_STORE', fromEnvironment('RINGFENCE_STORE')) ??
    from('store, in the config file', config.store)
  if (url !== undefined && noteSecrets(url.text) && url === given) hideArguments(output, 'RINGFENCE_STORE')
  return url
}

/** A URL as it may be shown. */
export function redacted(url: string): string {
  const { before, login, after } = partsOf(url)
  const [user, password] = splitOnce(login, ':')
  const shownLogin = password === undefined ? login : `${user}:***`
  return `${before}${shownLogin}${after}`.replace(SECRET_PARAMETER, '$1***')
}

const SECRET_PARAMETER = /([?&](?:password|passwd|pass|token|secret)=)([^&#]*)/gi

/** True if there are any. */
function noteSecrets(url: string): boolean {
  const found = [splitOnce(partsOf(url).login, ':')[1]]
  for (const match of url.matchAll(SECRET_PARAMETER)) found.push(match[2])
  const secrets = found.filter((secret) => secret !== undefined && secret !== '') as string[]
  for (const secret of secrets) keepSecret(secret)
  return secrets.length > 0
}

/** Also of a URL that is none: what stands before an @ may be a password, whatever is wrong with the rest. */
function partsOf(url: string): { before: string; login: string; after: string } {
  const [, before = url, login = '', after = ''] = /^((?:[a-z0-9+]*:?\/{1,2})?)(.*)(@[^@]*)$/is.exec(url) ?? []
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

function fromFile(path: string | undefined): Setting | undefined {
  if (path === undefined) return undefined
  const text = readOrThrow(path, 'the file with the engine’s URL').trim()
  if (text === '') throw usage(`${path}: expected the URL of an engine, got an empty file`)
  const lines = text.split('\n').length
  if (lines > 1) throw usage(`${path}: expected one line with the URL of an engine, got ${lines} lines`)
  return { text, source: path }
}

function parseConfig(path: string, text: string): Config {
  let config: unknown
  try {
    config = JSON.parse(text)
  } catch {
    // Node's message would quote the file, passwords and all.
    throw usage(`${path} is not valid JSON`, 'correct or remove it')
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config))
    throw usage(`${path}: expected an object, got ${shown(config)}`)
  for (const [key, value] of Object.entries(config)) {
    if (!KEYS.includes(key as keyof Config)) throw usage(`${path}: expected ${KEYS.join(', ')}, got ${shown(key)}`)
    if (typeof value !== 'string') throw usage(`${path}: ${key}: expected a string, got ${shown(value)}`)
    if (value.trim() === '') throw usage(`${path}: ${key} is empty`, 'give it a value, or remove it')
  }
  const { engineFile, ...rest } = config as Config
  // A path in a file is meant from where the file is.
  return engineFile === undefined ? rest : { ...rest, engineFile: resolve(dirname(path), engineFile) }
}

function readOrThrow(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw usage(`${what} can't be read: ${(error as Error).message}`)
  }
}

/** A config file that nobody named is there, or may be, and is not read. */
class Unread extends Failure {
  constructor(message: string, next: string) {
    super(EXIT.usage, message, next)
  }
}

interface Found {
  readonly path: string
  readonly text: string | undefined
}

/** A file of the current folder may have been put there by anyone, for a command that root runs there. */
function inCurrentFolder(): Found {
  const path = 'ringfence.json'
  const check = ({ uid }: Stats): void => {
    if (uid === 0 || uid === process.getuid?.() || process.getuid === undefined) return
    throw new Unread(
      `./${path} is not obeyed: it belongs to the user ${uid}, neither to this user nor to root`,
      `if you trust it, name it: --config ${path}`,
    )
  }
  const text = readIfThere(
    path,
    check,
    'run it in a folder that this user may search; --config FILE names another file',
  )
  return { path, text }
}

function ofUser(): Found {
  const { XDG_CONFIG_HOME: folder = '' } = process.env
  const path = join(folder === '' ? join(homedir(), '.config') : folder, 'ringfence', 'config.json')
  const next =
    'if HOME or XDG_CONFIG_HOME is of another user (after sudo or su), set it to a folder of this one; --config FILE names another file'
  return { path, text: readIfThere(path, () => undefined, next) }
}

/** Looks before it opens: a pipe without a writer would block us forever, and opening a device may have an effect. */
function readIfThere(path: string, check: (stats: Stats) => void, next: string): string | undefined {
  let file: number | undefined
  try {
    check(lstatSync(path))
    const found = statSync(path)
    check(found)
    assertRegular(path, found)
    // It may have been exchanged since.
    file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
    const opened = fstatSync(file)
    check(opened)
    assertRegular(path, opened)
    return readFileSync(file, 'utf8')
  } catch (error) {
    if (error instanceof Failure) throw error
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    throw new Unread(`the config file ${path} can't be read: ${message}`, next)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

function assertRegular(path: string, stats: Stats): void {
  if (stats.isFile()) return
  const kind = stats.isDirectory() ? 'a folder' : stats.isFIFO() ? 'a pipe' : stats.isSocket() ? 'a socket' : 'a device'
  throw new Unread(
    `the config file ${path} can't be read: it is ${kind}, and no regular file`,
    'remove it or rename it',
  )
}

/** A variable that is set to nothing is a mistake, as in `RINGFENCE_URL=$REDIS_URL`: every machine would have a lock of its own. */
export function fromEnvironment(name: string): string | undefined {
  const text = process.env[name]
  if (text?.trim() === '') throw usage(`${name} is empty`, 'give it a value, or unset it')
  return text
}
