import { inOrder, intoOurApi } from './redlock-api.ts'
import { edited, nameOf, Syntax, type Edit, type Node, type Parse } from './syntax.ts'

const DROP_IN = 'ringfence/redlock'
const REDLOCK = 'redlock'

/** What the drop-in has. */
const EXPORTS = new Set([
  'default',
  'Redlock',
  'Lock',
  'ExecutionError',
  'ResourceLockedError',
  'LockError',
  'ClientExecutionResult',
  'ExecutionResult',
  'ExecutionStats',
  'RedlockAbortSignal',
  'Settings',
])

/** Something about a line: what was done, or why it was left to a person. */
export interface Remark {
  readonly line: number
  readonly text: string
}

export interface Migration {
  /** The new text; the old one, if nothing is to be changed. */
  readonly code: string
  readonly done: readonly Remark[]
  readonly left: readonly Remark[]
  /** It is no program that could be understood. */
  readonly isUnread?: boolean
}

export interface MigrationOptions {
  readonly file: string
  readonly parse: Parse
  /** Rewrite the calls, too, where all of a file is understood. */
  readonly api: boolean
}

/**
 * Rewrites what a program says to redlock. The import leads to the drop-in, which has the same API. With `api`, a file in
 * which every use of redlock is understood gets ours instead; a file with one that is not keeps redlock's, so that what comes
 * out is one or the other and never a mixture.
 */
export function migrateRedlock(code: string, { file, parse, api }: MigrationOptions): Migration {
  const nothing: Migration = { code, done: [], left: [] }
  if (!code.includes(REDLOCK)) return nothing
  let syntax: Syntax
  try {
    syntax = new Syntax(file, code, parse)
  } catch (error) {
    return { ...nothing, left: [{ line: 1, text: `cannot be read: ${(error as Error).message}` }], isUnread: true }
  }
  const modules = api ? [REDLOCK, DROP_IN] : [REDLOCK]
  // Everything that loads one of them: imports, exports from it, `import()` and `require()`.
  const imports = syntax.nodes.filter((node) => modules.includes(String(sourceOf(node)?.['value'])))
  const left = mocks(syntax)
  if (imports.length === 0) return { ...nothing, left }
  left.push(...shortDurations(syntax))

  if (api) {
    const { edits, done, notes, reasons } = intoOurApi(syntax, imports)
    if (reasons.length === 0) return { code: edited(code, edits), done, left: inOrder([...left, ...notes]) }
    left.push(...reasons.map(({ line, text }) => ({ line, text: `keeps redlock's API: ${text}` })))
  }
  const moved = imports.filter((node) => sourceOf(node)?.['value'] === REDLOCK).map((node) => toDropIn(syntax, node))
  left.push(...moved.flatMap((result) => ('left' in result ? [result.left] : [])), ...scripts(syntax, imports))
  const changes = moved.flatMap((result) => ('edit' in result ? [result] : []))
  const edits = changes.map(({ edit }) => edit)
  const done = changes.map(({ line }) => ({ line, text: `now from '${DROP_IN}'` }))
  return { code: edited(code, edits), done, left: inOrder(left) }
}

/** The literal that names the module. */
function sourceOf(node: Node): Node | undefined {
  if (/^(Import|Export\w*)Declaration$/.test(node.type)) return (node['source'] as Node | null) ?? undefined
  if (node.type === 'ImportExpression') return node['source'] as Node
  if (node.type === 'TSExternalModuleReference') return node['expression'] as Node
  if (node.type !== 'CallExpression') return undefined
  const callee = node['callee'] as Node
  const loads = callee.type === 'Import' || (callee.type === 'Identifier' && callee['name'] === 'require')
  return loads ? (node['arguments'] as Node[])[0] : undefined
}

type Moved = { readonly line: number; readonly edit: Edit } | { readonly left: Remark }

function toDropIn(syntax: Syntax, node: Node): Moved {
  const { line } = node.loc.start
  const source = sourceOf(node)!
  const quote = syntax.text(source)[0]!
  const edit = { start: source.start, end: source.end, text: `${quote}${DROP_IN}${quote}` }
  const unknown = importedNames(node).find((name) => !EXPORTS.has(name))
  if (unknown !== undefined) return { left: { line, text: `${DROP_IN} has no ${unknown}` } }
  if (node.type === 'TSExternalModuleReference') {
    return { left: { line, text: `write \`import Redlock from '${DROP_IN}'\` instead of \`import = require()\`` } }
  }
  if (node.type !== 'CallExpression' || (node['callee'] as Node).type === 'Import') return { line, edit }

  // redlock 4 is the class itself; 5 has it as `default`. The drop-in is an object with both names.
  const declarator = syntax.parent(node)
  const id = declarator?.type === 'VariableDeclarator' ? (declarator['id'] as Node) : undefined
  if (id?.type === 'ObjectPattern' || syntax.parent(node)?.type === 'MemberExpression') return { line, edit }
  if (id?.type === 'Identifier' && id['typeAnnotation'] === undefined && isClassOnly(syntax, id)) {
    const name = id['name'] as string
    const text = `{ ${name === 'Redlock' ? name : `Redlock: ${name}`} } = ${syntax.code.slice(node.start, source.start)}${edit.text}`
    return { line, edit: { start: id.start, end: source.end, text } }
  }
  return { left: { line, text: `write \`const { Redlock } = require('${DROP_IN}')\`: it is an object, not the class` } }
}

/**
 * Whether a variable is the class of redlock 4 and nothing else: `new Redlock()` and `Redlock.LockError`. With `Redlock.default` it is
 * the module of redlock 5.
 */
function isClassOnly(syntax: Syntax, id: Node): boolean {
  const uses = syntax.references(id['name'] as string, syntax.scope(syntax.parent(id)!)).filter((node) => node !== id)
  return uses.every((use) => {
    const parent = syntax.parent(use)
    if (parent?.type === 'MemberExpression') return !parent['computed'] && nameOf(parent['property']) === 'LockError'
    return parent?.type === 'NewExpression' && parent['callee'] === use
  })
}

function importedNames(node: Node): string[] {
  return ((node['specifiers'] as Node[] | undefined) ?? []).flatMap((specifier) => {
    const name = (specifier[node.type === 'ImportDeclaration' ? 'imported' : 'local'] as Node | undefined)?.['name']
    return typeof name === 'string' && !/Default|Namespace/.test(specifier.type) ? [name] : []
  })
}

/** `vi.mock('redlock')` and the like: what it stands for is in the test. */
function mocks(syntax: Syntax): Remark[] {
  return syntax.ofType('CallExpression').flatMap((node) => {
    const [first] = node['arguments'] as Node[]
    const method = ((node['callee'] as Node)['property'] as Node | undefined)?.['name']
    const mocked = first?.['value'] === REDLOCK && /mock$/i.test(String(method))
    return mocked ? [{ line: node.loc.start.line, text: 'a mock of redlock: mock what is imported now' }] : []
  })
}

function scripts(syntax: Syntax, imports: readonly Node[]): Remark[] {
  const specifiers = imports.flatMap((node) => (node['specifiers'] as Node[] | undefined) ?? [])
  const names = new Set(specifiers.map((each) => String((each['local'] as Node)['name'])))
  return syntax.ofType('NewExpression').flatMap((node) => {
    const callee = node['callee'] as Node
    if (!names.has(String(callee['name'])) || (node['arguments'] as Node[]).length < 3) return []
    return [{ line: node.loc.start.line, text: 'scripts of your own (the third argument) have no counterpart' }]
  })
}

/** Which argument of these calls is the duration: the last of two, and that of `lock.extend(duration)`. */
const WITH_DURATION = new Set(['acquire', 'using', 'lock', 'lockWithOptions', 'extend'])
/** The shortest ttl of ours, and so of the drop-in. */
const MIN_TTL_MS = 50

/** redlock takes any duration. */
function shortDurations(syntax: Syntax): Remark[] {
  return syntax.ofType('CallExpression').flatMap((node) => {
    const [first, second] = node['arguments'] as Node[]
    const name = String(((node['callee'] as Node)['property'] as Node | undefined)?.['name'])
    const duration = second ?? (name === 'extend' ? first : undefined)
    const ms = duration === undefined || !WITH_DURATION.has(name) ? undefined : syntax.numberOf(duration)
    if (ms === undefined || ms >= MIN_TTL_MS) return []
    return [{ line: node.loc.start.line, text: `a duration of ${ms} ms is refused: write ${MIN_TTL_MS} or more` }]
  })
}
