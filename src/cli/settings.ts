import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { shown } from '../duration.ts'
import type { Options } from './command-line.ts'
import { usage } from './exit-codes.ts'
import { keepSecret, type Output } from './output.ts'

/** What a config file may say; options and environment come first. */
export interface Config {
  readonly engine?: string
  readonly engineFile?: string
  readonly ttl?: string
  readonly wait?: string
  readonly grace?: string
  readonly label?: string
}

const KEYS: readonly (keyof Config)[] = ['engine', 'engineFile', 'ttl', 'wait', 'grace', 'label']

/** The config file that was named, or else ./ringfence.json, or else the user's own. */
export function readConfig(options: Options): Config {
  const named = options.text('config') ?? process.env['RINGFENCE_CONFIG']
  if (named !== undefined) return parseConfig(named, readOrThrow(named, 'the config file'))
  const home = process.env['XDG_CONFIG_HOME'] ?? join(homedir(), '.config')
  for (const path of ['ringfence.json', join(home, 'ringfence', 'config.json')]) {
    const text = readIfThere(path)
    if (text !== undefined) return parseConfig(path, text)
  }
  return {}
}

/** The engine's URL, and every secret in it known to the output; undefined for the embedded engine. */
export function engineUrl(options: Options, config: Config, output: Output): string | undefined {
  const { env } = process
  const given = options.text('engine')
  const file = options.text('engine-file')
  if (given !== undefined && file !== undefined) throw usage('--engine and --engine-file exclude each other')
  const url =
    given ??
    fromFile(file) ??
    nonEmpty(env['RINGFENCE_URL']) ??
    fromFile(nonEmpty(env['RINGFENCE_URL_FILE'])) ??
    config.engine ??
    fromFile(config.engineFile)
  if (url === undefined) return undefined
  const hides = noteSecrets(url)
  if (hides && url === given) hideArguments(output)
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
function hideArguments(output: Output): void {
  process.title = 'ringfence'
  output.say(
    'a password among the arguments can be seen by `ps`; put the URL into RINGFENCE_URL or a file (--engine-file)',
  )
}

function splitOnce(text: string, by: string): [before: string, after: string | undefined] {
  const at = text.indexOf(by)
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)]
}

function fromFile(path: string | undefined): string | undefined {
  if (path === undefined) return undefined
  const url = readOrThrow(path, 'the file with the engine’s URL').trim()
  if (url === '') throw usage(`${path}: expected the URL of an engine, got an empty file`)
  return url
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

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    throw usage(`the config file can't be read: ${message}`)
  }
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text
}
