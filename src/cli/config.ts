import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync, statSync, type Stats } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { shown } from '../duration.ts'
import { didYouMean, type Options } from './command-line.ts'
import { EXIT, Failure, usage } from './exit-codes.ts'
import type { Output } from './output.ts'
import { fromEnvironment, readOrThrow, type Setting } from './settings.ts'

const TEXTS = ['engine', 'engineFile', 'ttl', 'wait', 'grace', 'label', 'store'] as const
const KEYS: readonly string[] = [...TEXTS, 'requireEngine']

export type ConfigKey = (typeof TEXTS)[number]

interface ConfigFile {
  readonly path: string
  readonly texts: Readonly<Partial<Record<ConfigKey, string>>>
  readonly requireEngine: boolean | undefined
}

/** For all users of the machine. */
const SYSTEM_CONFIG = '/etc/ringfence/config.json'

/** What the config files say; options and environment come first. Of several files, the first that names a setting decides on it. */
export class Config {
  readonly #files: readonly ConfigFile[]

  constructor(files: readonly ConfigFile[] = []) {
    this.#files = files
  }

  get paths(): readonly string[] {
    return this.#files.map(({ path }) => path)
  }

  setting(key: ConfigKey): Setting | undefined {
    for (const { path, texts } of this.#files) {
      const text = texts[key]
      if (text !== undefined) return { text, source: `${key}, in ${path}` }
    }
    return undefined
  }

  /** The engine's URL or the file that has it, whichever is named first. */
  engine(): { readonly url?: Setting; readonly file?: string } {
    for (const { path, texts } of this.#files) {
      if (texts.engine !== undefined) return { url: { text: texts.engine, source: `engine, in ${path}` } }
      if (texts.engineFile !== undefined) return { file: texts.engineFile }
    }
    return {}
  }

  /** Whether an engine must be named, where a file says that or the opposite. */
  requireEngine(): Setting | undefined {
    const file = this.#files.find(({ requireEngine }) => requireEngine !== undefined)
    return file && { text: String(file.requireEngine), source: `requireEngine, in ${file.path}` }
  }
}

/**
 * The config file that was named, or else ./ringfence.json, the user's own and that of the machine. One that nobody named and that
 * cannot be read may be the one that names the engine: it is passed over only where the engine is known without it.
 */
export function readConfig(options: Options, output: Output, system = SYSTEM_CONFIG): Config {
  const named = options.text('config') ?? fromEnvironment('RINGFENCE_CONFIG')
  if (named !== undefined) return new Config([parseConfig(named, readOrThrow(named, 'the config file'))])
  const files: ConfigFile[] = []
  for (const find of [inCurrentFolder, ofUser, () => ofMachine(system)]) {
    try {
      const { path, text } = find()
      if (text !== undefined) files.push(parseConfig(path, text))
    } catch (error) {
      if (!(error instanceof Unread) || !namesEngine(options)) throw error
      output.say(`${error.message}; it is passed over, since the engine was named`)
    }
  }
  return new Config(files)
}

function namesEngine(options: Options): boolean {
  const { RINGFENCE_URL, RINGFENCE_URL_FILE } = process.env
  return options.has('engine') || options.has('engine-file') || Boolean(RINGFENCE_URL ?? RINGFENCE_URL_FILE)
}

function parseConfig(path: string, text: string): ConfigFile {
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
    if (!KEYS.includes(key)) {
      const hint = didYouMean(key, KEYS)
      throw usage(`${path}: unknown key ${shown(key)}${hint}`, `the keys of the file are ${KEYS.join(', ')}`)
    }
    if (key === 'requireEngine') {
      if (typeof value !== 'boolean') throw usage(`${path}: ${key}: expected true or false, got ${shown(value)}`)
      continue
    }
    if (typeof value !== 'string') throw usage(`${path}: ${key}: expected a string, got ${shown(value)}`)
    if (value.trim() === '') throw usage(`${path}: ${key} is empty`, 'give it a value, or remove it')
  }
  const { requireEngine, ...texts } = config as ConfigFile['texts'] & { requireEngine?: boolean }
  // A path in a file is meant from where the file is.
  const file = texts.engineFile === undefined ? {} : { engineFile: resolve(dirname(path), texts.engineFile) }
  return { path, texts: { ...texts, ...file }, requireEngine }
}

/** A config file that nobody named is there, or may be, and is not read. */
class Unread extends Failure {
  constructor(message: string, next: string) {
    super(EXIT.usage, message, next)
  }
}

interface FoundFile {
  readonly path: string
  readonly text: string | undefined
}

/** A file of the current folder may have been put there by anyone, for a command that root runs there. */
function inCurrentFolder(): FoundFile {
  const path = 'ringfence.json'
  const next = 'run it in a folder that this user may search; --config FILE names another file'
  return { path, text: readIfThere(path, `./${path}`, next) }
}

function ofUser(): FoundFile {
  const { XDG_CONFIG_HOME: folder = '' } = process.env
  const path = join(folder === '' ? join(homedir(), '.config') : folder, 'ringfence', 'config.json')
  const next =
    'if HOME or XDG_CONFIG_HOME is of another user (after sudo or su), set it to a folder of this one; --config FILE names another file'
  return { path, text: readIfThere(path, path, next) }
}

function ofMachine(path: string): FoundFile {
  return { path, text: readIfThere(path, path, 'let every user read it; --config FILE names another file') }
}

/** Of someone else, or open to the writing of others: it may say anything, also where the locks of root are. */
function assertTrusted(path: string, shownPath: string, stats: Stats): void {
  // Windows has no owners of this kind.
  if (process.getuid === undefined) return
  const { uid } = stats
  // Links and devices are writable by everyone as a rule; what is no regular file is refused for that.
  const others = stats.isFile() ? writableBy(stats) : undefined
  const why =
    uid !== 0 && uid !== process.getuid()
      ? `it belongs to the user ${uid}, neither to this user nor to root`
      : others === undefined
        ? undefined
        : `${others} may write to it`
  if (why === undefined) return
  const repair = others === undefined ? '' : `chmod go-w ${path}, or `
  throw new Unread(`${shownPath} is not obeyed: ${why}`, `${repair}if you trust it, name it: --config ${path}`)
}

/** Many systems give each user a group of their own, and let it write: nobody else is in it. */
function writableBy({ mode, gid }: Stats): string | undefined {
  if ((mode & 0o002) !== 0) return 'every user'
  const isOwn = gid === 0 || gid === process.getgid?.()
  return (mode & 0o020) === 0 || isOwn ? undefined : `the group ${gid}`
}

/** Looks before it opens: a pipe without a writer would block us forever, and opening a device may have an effect. */
function readIfThere(path: string, shownPath: string, next: string): string | undefined {
  const check = (stats: Stats): void => assertTrusted(path, shownPath, stats)
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
    throw new Unread(`the config file ${path} cannot be read: ${message}`, next)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

function assertRegular(path: string, stats: Stats): void {
  if (stats.isFile()) return
  const kind = stats.isDirectory() ? 'a folder' : stats.isFIFO() ? 'a pipe' : stats.isSocket() ? 'a socket' : 'a device'
  throw new Unread(
    `the config file ${path} cannot be read: it is ${kind}, and no regular file`,
    'remove it or rename it',
  )
}
