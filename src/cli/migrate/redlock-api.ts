import { lockUses, type LockUses } from './redlock-locks.ts'
import { droppedFrom, settingsOf, waitOf, type RetrySettings } from './redlock-settings.ts'
import type { Remark } from './redlock.ts'
import { nameOf, type Edit, type Node, type Syntax } from './syntax.ts'

/** The default of `maxTtl`: a quorum refuses a longer ttl. */
const MAX_TTL_MS = 60_000

export interface Rewriting {
  readonly edits: Edit[]
  readonly done: Remark[]
  /** What a person should look at, although it was rewritten. */
  readonly notes: Remark[]
  /** Why the file is not rewritten. */
  readonly reasons: Remark[]
}

/** A variable that is a `new Redlock(…)`. */
interface Instance {
  readonly name: string
  readonly scope: Node
  readonly isQuorum: boolean
  readonly settings: RetrySettings
}

/** From redlock's API to ours, if every use of it in the file is one that is known here. */
export function intoOurApi(syntax: Syntax, imports: readonly Node[]): Rewriting {
  return new Rewriter(syntax).rewrite(imports)
}

function isClass(key: unknown): boolean {
  return ['default', 'Redlock'].includes(nameOf(key) ?? '')
}

/** There the module is an object, and not the class as redlock 4 is. */
function isDropIn(call: Node): boolean {
  return (call['arguments'] as Node[])[0]?.['value'] !== 'redlock'
}

/** The variable of `Redlock`, or of `{ default: Redlock }`. */
function boundName(id: Node | undefined, isMember: boolean): string | undefined {
  if (id?.type === 'Identifier' && id['typeAnnotation'] === undefined) return nameOf(id)
  const [property, second] = (id?.type === 'ObjectPattern' && !isMember ? id['properties'] : []) as Node[]
  const isPlain = property?.type === 'ObjectProperty' && second === undefined && isClass(property['key'])
  const value = property?.['value'] as Node | undefined
  return isPlain && value?.type === 'Identifier' ? nameOf(value) : undefined
}

/** What the calls of redlock 4 are called here. */
const VERSION_4: Readonly<Record<string, string>> = {
  lock: 'acquire(names, { ttl, renew: false })',
  lockWithOptions: 'acquire(names, { ttl, wait, renew: false })',
  acquireWithOptions: 'acquire(names, { ttl, wait, renew: false })',
  unlock: 'lease.release()',
  disposer: 'using(names, { ttl }, work)',
}

function ofVersion4(name: string): string {
  if (!Object.hasOwn(VERSION_4, name)) return `${name}() has no counterpart`
  return `${name}() of redlock 4 is not rewritten: by hand, it becomes \`${VERSION_4[name]}\``
}

/** By their lines. */
export function inOrder(remarks: Remark[]): Remark[] {
  return remarks.sort((some, other) => some.line - other.line)
}

class Rewriter {
  readonly #syntax: Syntax
  readonly #edits: Edit[] = []
  readonly #done: Remark[] = []
  readonly #notes: Remark[] = []
  readonly #reasons: Remark[] = []
  readonly #engines = new Set<string>()

  constructor(syntax: Syntax) {
    this.#syntax = syntax
  }

  rewrite(imports: readonly Node[]): Rewriting {
    const [declaration, ...others] = imports
    const name = declaration === undefined ? undefined : this.#className(declaration)
    for (const other of others) this.#refuse(other, 'it is imported more than once')
    if (declaration !== undefined && name !== undefined) {
      const instances = this.#usesOf(name).flatMap((use) => this.#instance(use) ?? [])
      for (const instance of instances) this.#calls(instance)
      this.#imports(declaration)
    }
    return { edits: this.#edits, done: inOrder(this.#done), notes: this.#notes, reasons: inOrder(this.#reasons) }
  }

  #refuse(node: Node, text: string): undefined {
    this.#reasons.push({ line: node.loc.start.line, text })
  }

  /** Its only import must be that of the class. */
  #className(declaration: Node): string | undefined {
    if (declaration.type === 'CallExpression') return this.#requiredName(declaration)
    const specifiers = (declaration['specifiers'] as Node[] | undefined) ?? []
    if (declaration.type !== 'ImportDeclaration' || declaration['importKind'] === 'type' || specifiers.length === 0) {
      return this.#refuse(declaration, 'only `import Redlock from` and `const Redlock = require()` are rewritten')
    }
    for (const each of specifiers) {
      const imported = nameOf(each['imported']) ?? each.type
      if (!['ImportDefaultSpecifier', 'Redlock', 'default'].includes(imported)) this.#refuseName(each)
    }
    if (specifiers.length > 1) return undefined
    return (specifiers[0]!['local'] as Node)['name'] as string
  }

  #refuseName(node: Node): undefined {
    return this.#refuse(node, `${this.#syntax.text(node)} has no counterpart of the same shape`)
  }

  /** `const Redlock = require('redlock')`, with `.default` or in braces too. */
  #requiredName(call: Node): string | undefined {
    const syntax = this.#syntax
    const member = syntax.parent(call)
    const isMember = member?.type === 'MemberExpression' && member['object'] === call && isClass(member['property'])
    const declarator = isMember ? syntax.parent(member) : member
    const id = declarator?.type === 'VariableDeclarator' ? (declarator['id'] as Node) : undefined
    const name = isMember || id?.type === 'ObjectPattern' || !isDropIn(call) ? boundName(id, isMember) : undefined
    const declaration = declarator && syntax.parent(declarator)
    const isAlone = (declaration?.['declarations'] as Node[] | undefined)?.length === 1
    if (isAlone && declaration?.['kind'] === 'const' && syntax.scope(declarator!).type === 'Program') {
      if (name !== undefined) return name
      const properties = id?.type === 'ObjectPattern' && !isMember ? (id['properties'] as Node[]) : []
      const others = properties.filter((each) => each.type === 'ObjectProperty' && !isClass(each['key']))
      for (const each of others) this.#refuseName(each)
      if (others.length > 0) return undefined
    }
    return this.#refuse(call, 'only `const Redlock = require()` at the top of a file is rewritten')
  }

  /** Every use of a name that is declared once. */
  #usesOf(name: string, within: Node = this.#syntax.nodes[0]!): Node[] {
    const all = this.#syntax.references(name, this.#syntax.nodes[0]!)
    const [, second] = all.filter((node) => this.#syntax.isDeclaration(node))
    if (second !== undefined) this.#refuse(second, `${name} is declared more than once`)
    return this.#syntax.references(name, within).filter((node) => !this.#syntax.isDeclaration(node))
  }

  /** `const redlock = new Redlock([client], { … })`. */
  #instance(use: Node): Instance | undefined {
    const syntax = this.#syntax
    const creation = syntax.parent(use)
    const declarator = creation && syntax.parent(creation)
    const declaration = declarator && syntax.parent(declarator)
    const id = declarator?.['id'] as Node | undefined
    if (creation?.type === 'MemberExpression' && nameOf(creation['property']) === 'LockError') {
      return this.#refuse(creation, 'LockError becomes HeldError, WaitTimeoutError, QuorumError or EngineError')
    }
    if (creation?.type !== 'NewExpression' || creation['callee'] !== use) {
      return this.#refuse(use, 'the class is used for something else than `new`')
    }
    if (declarator?.type !== 'VariableDeclarator' || declaration?.['kind'] !== 'const' || id?.type !== 'Identifier') {
      return this.#refuse(creation, 'what `new Redlock` makes is not a constant of this file')
    }
    if (id['typeAnnotation'] !== undefined) return this.#refuse(id, 'the constant has a type of redlock')
    if (syntax.parent(declaration)?.type.startsWith('Export') === true) {
      return this.#refuse(declaration, `${syntax.text(id)} is exported: other files use it`)
    }
    const [clients, options, ...rest] = creation['arguments'] as Node[]
    if (rest.length > 0) return this.#refuse(creation, 'scripts of your own have no counterpart')
    const count = this.#countOf(clients)
    if (clients === undefined || count === undefined) {
      return this.#refuse(creation, 'it cannot be seen how many clients there are')
    }
    if (count === 2 || count === 0) return this.#refuse(creation, 'expected one client, or three or more')
    const settings = settingsOf(syntax, options)
    if (settings === undefined) return this.#refuse(options!, 'the settings are not numbers that are written here')
    const wait = waitOf(settings)
    if (wait === undefined)
      return this.#refuse(options!, 'retries without a pause have no counterpart: choose a `wait`')
    this.#leaveOut(options)

    const engine = count === 1 ? 'redis' : 'redlock'
    this.#engines.add(engine)
    const servers = count === 1 ? syntax.text((clients['elements'] as Node[])[0]!) : syntax.text(clients)
    const drift = settings.driftFactor === 0.01 ? '' : `, { drift: ${settings.driftFactor} }`
    this.#change(creation, `createLocks(${this.#local(engine)}(${servers}${drift}), { wait: ${wait} })`)
    const scope = syntax.scope(declarator)
    return { name: id['name'] as string, scope, isQuorum: count > 1, settings }
  }

  #leaveOut(options: Node | undefined): void {
    for (const { node, text } of droppedFrom(options)) this.#notes.push({ line: node.loc.start.line, text })
  }

  #countOf(clients: Node | undefined): number | undefined {
    if (clients?.type !== 'ArrayExpression') return undefined
    const elements = clients['elements'] as (Node | null)[]
    return elements.some((each) => each === null || each.type === 'SpreadElement') ? undefined : elements.length
  }

  #calls(instance: Instance): void {
    const ofLocks: Node[] = []
    for (const use of this.#usesOf(instance.name, instance.scope)) {
      const member = this.#syntax.parent(use)
      const call = member && this.#syntax.parent(member)
      const method = member?.type === 'MemberExpression' && member['object'] === use ? member['property'] : undefined
      const name = member?.['computed'] === true ? undefined : nameOf(method)
      if (name === undefined || call?.type !== 'CallExpression' || call['callee'] !== member) {
        this.#refuse(use, `${instance.name} is handed on`)
      } else if (name === 'using') this.#using(instance, call)
      else if (name === 'acquire') this.#acquire(instance, call)
      else if (name === 'on') this.#refuse(call, 'on(): what single nodes answer is told to `observe` of createLocks')
      else if (name === 'quit') this.#refuse(call, 'quit(): close() leaves the clients open, which are yours to end')
      else if (name === 'release' || name === 'extend') ofLocks.push(call)
      else this.#refuse(call, ofVersion4(name))
    }
    // They are rewritten with the lock that they are about.
    for (const call of ofLocks) {
      const [lock] = call['arguments'] as Node[]
      if (lock?.type !== 'Identifier' || !this.#locks.has(nameOf(lock)!))
        this.#refuse(call, 'it cannot be seen which lock this is')
    }
  }

  readonly #locks = new Set<string>()

  #acquire(instance: Instance, call: Node): void {
    const syntax = this.#syntax
    const [names, duration, options] = call['arguments'] as Node[]
    const how = this.#options(instance, call, [duration, options], ['renew: false'])
    if (names === undefined || how === undefined) return
    const waiting = syntax.parent(call)
    const target = waiting?.type === 'AwaitExpression' ? syntax.parent(waiting) : undefined
    const id = (target?.['id'] ?? target?.['left']) as Node | undefined
    const isKept = target?.type === 'VariableDeclarator' || this.#isStatement(target, 'AssignmentExpression')
    if (!isKept || id?.type !== 'Identifier' || id['typeAnnotation'] !== undefined) {
      return this.#refuse(call, 'the lock does not go into a variable of its own')
    }
    this.#changeArguments(call, `${this.#names(names)}, ${how}`)
    this.#locks.add(id['name'] as string)
    this.#lock(instance, id)
  }

  #isStatement(node: Node | undefined, type: string): boolean {
    return node?.type === type && this.#syntax.parent(node)?.type === 'ExpressionStatement'
  }

  /** What happens to a lock from its declaration on. Several calls of `acquire` may share a variable. */
  #lock(instance: Instance, id: Node): void {
    const found: LockUses = lockUses(this.#syntax, id, instance.name)
    for (const { node, text } of found.refused) this.#refuse(node, text)
    for (const { node, text, duration } of found.rewritten) {
      if (duration !== undefined && !this.#isShort(instance, duration)) continue
      if (!this.#edits.some(({ start }) => start === node.start)) this.#change(node, text)
    }
  }

  #using(instance: Instance, call: Node): void {
    const syntax = this.#syntax
    const args = call['arguments'] as Node[]
    const work = args.at(-1)
    const [names, duration] = args
    const how = this.#options(instance, call, [duration, args.length === 4 ? args[2] : undefined], [])
    if (names === undefined || work === undefined || how === undefined) return
    const params = work['params'] as Node[] | undefined
    if (!/^(Arrow)?FunctionExpression$/.test(work.type) || params === undefined || params.length > 1) {
      return this.#refuse(work, 'the routine is not a function that is written here')
    }
    const [param] = params
    if (param !== undefined) {
      if (param.type !== 'Identifier') return this.#refuse(param, 'the parameter of the routine is not a plain name')
      this.#signal(work, param)
    }
    const text = `${this.#names(names)}, ${how}, `
    this.#edits.push({ start: names.start, end: work.start, text })
    this.#done.push({ line: call.loc.start.line, text: `now using(${text}…)` })
    if (syntax.text(names).includes(`${instance.name}.`)) this.#refuse(names, 'a call within a call')
  }

  /** `signal` becomes a field of the lease, and its `error` the signal's own `reason`. */
  #signal(work: Node, param: Node): void {
    const syntax = this.#syntax
    const name = param['name'] as string
    const field = name === 'signal' ? '{ signal }' : `{ signal: ${name} }`
    const isBare = !syntax.code.slice(work.start, param.start).includes('(')
    this.#edits.push({ start: param.start, end: param.end, text: isBare ? `(${field})` : field })
    const uses = syntax.references(name, work).filter((node) => node.start > param.end)
    for (const use of uses) {
      const member = syntax.parent(use)
      const property = member?.['property'] as Node | undefined
      if (syntax.isDeclaration(use)) this.#refuse(use, `${name} is declared more than once`)
      if (member?.type.endsWith('MemberExpression') !== true || member['object'] !== use) {
        const text = `${name} is handed on: what reads its \`error\` there must read \`reason\``
        this.#notes.push({ line: use.loc.start.line, text })
        continue
      }
      if (property !== undefined && nameOf(property) === 'error') this.#change(property, 'reason', `${name}.reason`)
    }
  }

  /** The options of a call: `{ ttl: 5000, wait: 2000 }`. */
  #options(
    instance: Instance,
    call: Node,
    [duration, options]: readonly (Node | undefined)[],
    more: readonly string[],
  ): string | undefined {
    if (duration === undefined) return this.#refuse(call, 'there is no duration')
    if ((call['arguments'] as Node[]).some(({ type }) => type === 'SpreadElement')) {
      return this.#refuse(call, 'its arguments cannot be seen')
    }
    if (!this.#isShort(instance, duration)) return undefined
    const settings = settingsOf(this.#syntax, options, instance.settings)
    const wait = settings && waitOf(settings)
    if (settings === undefined || wait === undefined) {
      return this.#refuse(options!, 'the settings are not numbers that are written here')
    }
    this.#leaveOut(options)
    const text = this.#syntax.text(duration)
    const parts = [text === 'ttl' ? text : `ttl: ${text}`, ...more, ...(options === undefined ? [] : [`wait: ${wait}`])]
    return `{ ${parts.join(', ')} }`
  }

  #isShort({ isQuorum }: Instance, duration: Node): boolean {
    if (!isQuorum) return true
    const ms = this.#syntax.numberOf(duration)
    if (ms !== undefined && ms <= MAX_TTL_MS) return true
    this.#refuse(
      duration,
      'on a quorum, a ttl above 60 s needs `maxTtl` of the engine; whether this one is cannot be seen',
    )
    return false
  }

  #names(names: Node): string {
    const elements = names.type === 'ArrayExpression' ? (names['elements'] as (Node | null)[]) : []
    const [only] = elements
    const isOne = elements.length === 1 && only !== null && only !== undefined && only.type !== 'SpreadElement'
    return this.#syntax.text(isOne ? only : names)
  }

  #change(node: Node, text: string, what = text): void {
    this.#edits.push({ start: node.start, end: node.end, text })
    this.#done.push({ line: node.loc.start.line, text: `now ${what.replaceAll(/;?\n/g, '; ')}` })
  }

  #changeArguments(call: Node, text: string): void {
    const args = call['arguments'] as Node[]
    this.#edits.push({ start: args[0]!.start, end: args.at(-1)!.end, text })
    this.#done.push({ line: call.loc.start.line, text: `now acquire(${text})` })
  }

  /** The name of an engine in this file: variables are often called `redis` and `redlock`. */
  #local(engine: string): string {
    return this.#syntax.references(engine, this.#syntax.nodes[0]!).length > 0 ? `${engine}Engine` : engine
  }

  #imports(declaration: Node): void {
    const isRequire = declaration.type === 'CallExpression'
    const whole = isRequire ? this.#syntax.enclosing(declaration, 'VariableDeclaration')! : declaration
    const text = this.#syntax.text(whole)
    const from = isRequire ? (declaration['arguments'] as Node[])[0]! : (declaration['source'] as Node)
    const quote = this.#syntax.text(from)[0]!
    const end = text.endsWith(';') ? ';' : ''
    for (const name of ['createLocks', 'redisEngine', 'redlockEngine']) {
      const [first] = this.#syntax.references(name, this.#syntax.nodes[0]!)
      if (first !== undefined) this.#refuse(first, `the name ${name} is taken`)
    }
    const engines = [...this.#engines].sort().map((engine) => {
      const local = this.#local(engine)
      return local === engine ? engine : `${engine}${isRequire ? ': ' : ' as '}${local}`
    })
    if (engines.length === 0) {
      if (this.#reasons.length === 0) this.#refuse(declaration, 'there is no `new Redlock` in this file')
      return
    }
    const line = (names: string, module: string): string => {
      const place = `${quote}${module}${quote}`
      return isRequire ? `const { ${names} } = require(${place})${end}` : `import { ${names} } from ${place}${end}`
    }
    this.#change(whole, `${line('createLocks', 'ringfence')}\n${line(engines.join(', '), 'ringfence/redis')}`)
  }
}
