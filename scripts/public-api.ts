import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'

interface Documented {
  /** Text of the comment before it; empty without one. */
  readonly comment: string
  readonly code: string
}

export interface Entry {
  /** What a user imports from: `ringfence/redis`. */
  readonly specifier: string
  /** By name, in alphabetical order. */
  readonly exports: readonly (Documented & { readonly name: string })[]
}

/** The names that a module makes known, and what its declarations are made of. */
interface Module {
  /** A declaration by its name, without comments. Overloads of a function stand together. */
  readonly declarations: Map<string, string>
  /** The same as it was written: what is said about it, and the declaration with the comments inside. */
  readonly documented: Map<string, Documented>
  /** A local name that comes from another module. */
  readonly imports: Map<string, { readonly file: string; readonly name: string }>
  /** What is exported under which name. */
  readonly exports: Map<string, string>
  /** Modules of which everything is exported. */
  readonly stars: string[]
}

/**
 * Everything that a user of the package can see, as text: of each entry in package.json its exported declarations, and
 * below them the declarations that those mention. Made from what the compiler emits.
 */
export function publicApi(root: string): string {
  return fromDeclarations(root, (entries, folder) =>
    entries.map(({ path, file }) => `${section(path, file, folder)}\n`).join('\n'),
  )
}

/** What each entry exports, with what the comments say about it. */
export function reference(root: string): readonly Entry[] {
  return fromDeclarations(root, (entries) =>
    entries.map(({ path, file }) => {
      const modules = new Map<string, Module>()
      const exported = [...exportsOf(file, modules)].sort(([a], [b]) => (a < b ? -1 : 1))
      const exports = exported.map(([name, place]) => ({
        name,
        ...load(place.file, modules).documented.get(place.name)!,
      }))
      return { specifier: specifierOf(path), exports }
    }),
  )
}

function fromDeclarations<T>(
  root: string,
  use: (entries: readonly { path: string; file: string }[], folder: string) => T,
): T {
  const folder = mkdtempSync(join(tmpdir(), 'ringfence-api-'))
  try {
    emitDeclarations(root, folder)
    const entries = Object.entries(packageExports(root)).flatMap(([path, target]) =>
      typeof target === 'string' ? [] : [{ path, file: join(folder, sourceOf(target)) }],
    )
    return use(entries, folder)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

function specifierOf(path: string): string {
  return path === '.' ? 'ringfence' : `ringfence/${path.slice(2)}`
}

interface Target {
  readonly types: string
}

function sourceOf(target: Target | { readonly require: Target }): string {
  const { types } = 'require' in target ? target.require : target
  return types.replace('./dist/', '').replace(/cts$/, 'ts')
}

function packageExports(root: string): Record<string, string | Target | { readonly require: Target }> {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { exports: Record<string, never> }
  return manifest.exports
}

function emitDeclarations(root: string, folder: string): void {
  const compiler = join(root, 'node_modules/.bin/tsc')
  const options = ['--project', 'tsconfig.build.json', '--emitDeclarationOnly', '--outDir', folder]
  try {
    execFileSync(compiler, options, { cwd: root, stdio: 'pipe' })
  } catch (error) {
    // Errors in types are for the compiler's own check to tell; declarations are emitted all the same.
    if (!existsSync(join(folder, 'index.d.ts'))) throw error
  }
}

function section(path: string, file: string, folder: string): string {
  const modules = new Map<string, Module>()
  const exported = exportsOf(file, modules)
  const shown = new Map<string, string>()
  const mentioned = [...exported.values()]
  for (const name of [...exported.keys()].sort()) shown.set(name, declarationOf(exported.get(name)!, modules))
  const publicKeys = new Set([...exported.values()].map(({ file, name }) => `${file}#${name}`))
  const hidden = new Map<string, string>()
  for (let next = mentioned.shift(); next !== undefined; next = mentioned.shift()) {
    for (const other of mentions(next, modules)) {
      const key = `${other.file}#${other.name}`
      if (publicKeys.has(key) || hidden.has(key)) continue
      hidden.set(key, declarationOf(other, modules))
      mentioned.push(other)
    }
  }
  const below = [...hidden]
    .map(([key, text]) => [relative(folder, key), text] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1))
  return [`# ${specifierOf(path)}`, ...shown.values(), ...below.map(([, text]) => text.replace(/^export /gm, ''))].join(
    '\n\n',
  )
}

interface Place {
  readonly file: string
  readonly name: string
}

function exportsOf(file: string, modules: Map<string, Module>): Map<string, Place> {
  const module = load(file, modules)
  const found = new Map<string, Place>()
  for (const star of module.stars) for (const [name, place] of exportsOf(star, modules)) found.set(name, place)
  for (const [name, local] of module.exports) found.set(name, resolved({ file, name: local }, modules))
  return found
}

/** Follows imports and re-exports to where a name is declared. */
function resolved(place: Place, modules: Map<string, Module>): Place {
  const module = load(place.file, modules)
  if (module.declarations.has(place.name)) return place
  const imported = module.imports.get(place.name)
  if (imported !== undefined) return resolved(exportedAs(imported, modules), modules)
  throw new Error(`${place.file}: ${place.name} is exported but not declared`)
}

function exportedAs({ file, name }: Place, modules: Map<string, Module>): Place {
  const local = load(file, modules).exports.get(name)
  return { file, name: local ?? name }
}

function declarationOf(place: Place, modules: Map<string, Module>): string {
  return load(place.file, modules).declarations.get(place.name)!
}

/** What a declaration needs of others: the names in it that its module declares or imports from ours. */
function mentions(place: Place, modules: Map<string, Module>): Place[] {
  const module = load(place.file, modules)
  const words = new Set(declarationOf(place, modules).match(/[A-Za-z_]\w*/g))
  words.delete(place.name)
  return [...words]
    .filter((word) => module.declarations.has(word) || module.imports.has(word))
    .map((name) => resolved({ file: place.file, name }, modules))
}

const STATEMENT = /^(export|import|declare|interface|type|abstract|class|const|function|namespace)\b/

function load(file: string, modules: Map<string, Module>): Module {
  const known = modules.get(file)
  if (known !== undefined) return known
  const module: Module = {
    declarations: new Map(),
    documented: new Map(),
    imports: new Map(),
    exports: new Map(),
    stars: [],
  }
  modules.set(file, module)
  for (const written of statements(readFileSync(file, 'utf8'))) read(written, file, module)
  return module
}

/** Each with the comment before it. A comment in the middle of a statement may begin a line, too. */
function statements(source: string): Documented[] {
  const found: { comment: string; code: string }[] = []
  for (const [, comment = '', line = ''] of source.matchAll(/^(\/\*\*[\s\S]*?\*\/\n)?(.*)\n?/gm)) {
    if (line.trim() === '' || /^\s*\/\//.test(line)) continue
    if (STATEMENT.test(line) || found.length === 0) found.push({ comment: textOf(comment), code: line })
    else found.at(-1)!.code += `\n${comment}${line}`
  }
  return found
}

/** What a comment says, without the signs that make it one. */
function textOf(comment: string): string {
  return comment
    .trim()
    .replace(/^\/\*\*\s?|\s*\*\/$/g, '')
    .replace(/^\s*\* ?/gm, '')
    .trim()
}

function read(written: Documented, file: string, module: Module): void {
  const statement = withoutComments(written.code)
  const from = /from '(\.[^']*)'/.exec(statement)?.[1]
  const source = from === undefined ? undefined : resolve(dirname(file), from.replace(/\.[jt]s$/, '.d.ts'))
  const listed = /\{([\s\S]*?)\}/.exec(statement)?.[1] ?? ''
  if (/^import\b/.test(statement) && source !== undefined) {
    for (const [name, local] of specifiers(listed)) module.imports.set(local, { file: source, name })
  } else if (/^export (type )?\*/.test(statement) && source !== undefined) {
    module.stars.push(source)
  } else if (/^export (type )?\{/.test(statement)) {
    for (const [name, outside] of specifiers(listed)) {
      module.exports.set(outside, name)
      if (source !== undefined) module.imports.set(name, { file: source, name })
    }
  } else {
    declare(statement, written, module)
  }
}

function withoutComments(code: string): string {
  const lines = code.replace(/\/\*[\s\S]*?\*\//g, '').split('\n')
  return lines.filter((line) => line.trim() !== '').join('\n')
}

function declare(statement: string, written: Documented, module: Module): void {
  const name = /^(?:export )?(?:declare )?(?:abstract )?(?:interface|type|class|const|function|namespace) (\w+)/.exec(
    statement,
  )?.[1]
  if (name === undefined) return
  const before = module.declarations.get(name)
  // A class's private parts are nobody's business.
  const text = published(statement)
  module.declarations.set(name, before === undefined ? text : `${before}\n${text}`)
  const { comment, code } = module.documented.get(name) ?? { comment: '', code: '' }
  module.documented.set(name, {
    comment: [comment, written.comment].filter((part) => part !== '').join('\n\n'),
    code: `${code}${code === '' ? '' : '\n'}${published(written.code)}`,
  })
  if (/^export\b/.test(statement)) module.exports.set(name, name)
}

function specifiers(listed: string): [string, string][] {
  return listed
    .split(',')
    .map((part) => part.trim().replace(/^type /, ''))
    .filter((part) => part !== '')
    .map((part) => {
      const [name = '', local = name] = part.split(' as ')
      return [name, local]
    })
}

function published(code: string): string {
  return code.replace(/^\s+(#private|private .*);\n/gm, '').replace(/^export declare /, 'export ')
}
