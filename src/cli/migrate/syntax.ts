/** A node of the tree that @babel/parser makes. */
export interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly loc: { readonly start: { readonly line: number } }
  readonly [field: string]: unknown
}

export type Parse = (code: string, options: { sourceType: string; plugins: readonly string[] }) => Node

/** The name of an identifier, and of what has a plain name. */
export function nameOf(node: unknown): string | undefined {
  const { name } = (node ?? {}) as { name?: unknown }
  return typeof name === 'string' ? name : undefined
}

/** The tree of one file, with the parent of each node. */
export class Syntax {
  readonly code: string
  readonly nodes: readonly Node[]
  readonly #parents = new Map<Node, Node>()

  constructor(file: string, code: string, parse: Parse) {
    this.code = code
    const root = parse(code, { sourceType: 'unambiguous', plugins: pluginsFor(file) })
    const nodes: Node[] = [root]
    for (const node of nodes) {
      for (const child of childrenOf(node)) {
        this.#parents.set(child, node)
        nodes.push(child)
      }
    }
    this.nodes = nodes
  }

  parent(node: Node): Node | undefined {
    return this.#parents.get(node)
  }

  /** The innermost node of this type around a node. */
  enclosing(node: Node, type: string): Node | undefined {
    let outer = this.parent(node)
    while (outer !== undefined && outer.type !== type) outer = this.parent(outer)
    return outer
  }

  /** As it is written. */
  text(node: Node): string {
    return this.code.slice(node.start, node.end)
  }

  ofType(type: string): Node[] {
    return this.nodes.filter((node) => node.type === type)
  }

  /** The block, or the whole file, in which what this node declares is known. */
  scope(node: Node): Node {
    let scope = this.parent(node)
    while (scope !== undefined && !/^(Program|BlockStatement|StaticBlock|For.*Statement)$/.test(scope.type)) {
      scope = this.parent(scope)
    }
    return scope ?? this.nodes[0]!
  }

  /** Every place that means the variable `name` within a node: no keys, and no properties of something else. */
  references(name: string, within: Node): Node[] {
    return this.nodes.filter(
      (node) =>
        (node.type === 'Identifier' || node.type === 'JSXIdentifier') &&
        node['name'] === name &&
        node.start >= within.start &&
        node.end <= within.end &&
        !this.#isKey(node),
    )
  }

  #isKey(node: Node): boolean {
    const parent = this.parent(node)
    if (parent === undefined || parent['computed'] === true) return false
    if (/^(Optional)?MemberExpression$/.test(parent.type)) return parent['property'] === node
    if (/^(Import|Export)Specifier$/.test(parent.type)) return parent['local'] !== node
    // In `{ name }` the same text is key and value, by two nodes.
    return /Property$|Method$|^TSPropertySignature$|^TSMethodSignature$/.test(parent.type) && parent['key'] === node
  }

  /** Whether a variable of this name is declared here, by whatever means. */
  isDeclaration(node: Node): boolean {
    let inner = node
    for (let outer = this.parent(node); outer !== undefined; inner = outer, outer = this.parent(outer)) {
      if (/Pattern$|^RestElement$|^ObjectProperty$/.test(outer.type)) {
        // The default value of a pattern is an expression.
        if (outer.type === 'AssignmentPattern' && outer['right'] === inner) return false
        continue
      }
      if (outer.type === 'VariableDeclarator') return outer['id'] === inner
      if (/Function|Method$|^TSDeclareFunction$/.test(outer.type)) {
        return outer['id'] === inner || (outer['params'] as Node[] | undefined)?.includes(inner) === true
      }
      if (outer.type === 'CatchClause') return outer['param'] === inner
      if (/^Import\w*Specifier$/.test(outer.type)) return outer['local'] === inner
      return /^(Class(Declaration|Expression)|TS\w+Declaration)$/.test(outer.type) && outer['id'] === inner
    }
    return false
  }

  /** A number that is written here, or in a constant of this file. */
  numberOf(node: Node): number | undefined {
    if (node.type === 'NumericLiteral') return node['value'] as number
    if (node.type === 'UnaryExpression' && node['operator'] === '-') {
      const value = this.numberOf(node['argument'] as Node)
      return value === undefined ? undefined : -value
    }
    if (node.type === 'BinaryExpression') {
      const [left, right] = [this.numberOf(node['left'] as Node), this.numberOf(node['right'] as Node)]
      if (left === undefined || right === undefined) return undefined
      if (node['operator'] === '*') return left * right
      return node['operator'] === '+' ? left + right : undefined
    }
    return node.type === 'Identifier' ? this.#constant(node['name'] as string) : undefined
  }

  #constant(name: string): number | undefined {
    const declared = this.references(name, this.nodes[0]!).filter((node) => this.isDeclaration(node))
    const declarator = declared.length === 1 ? this.parent(declared[0]!) : undefined
    if (declarator?.type !== 'VariableDeclarator' || this.parent(declarator)?.['kind'] !== 'const') return undefined
    const init = declarator['init'] as Node | null
    return init === null ? undefined : this.numberOf(init)
  }
}

/** A change of the text: what is between the two positions becomes something else. */
export interface Edit {
  readonly start: number
  readonly end: number
  readonly text: string
}

export function edited(code: string, edits: readonly Edit[]): string {
  let text = code
  let limit = Infinity
  for (const edit of [...edits].sort((some, other) => other.start - some.start)) {
    if (edit.end > limit) throw new Error(`two changes of the same text, at ${edit.start}`)
    text = text.slice(0, edit.start) + edit.text + text.slice(edit.end)
    limit = edit.start
  }
  return text
}

function pluginsFor(file: string): string[] {
  if (/\.[cm]?ts$/.test(file)) return ['typescript', 'decorators-legacy']
  return file.endsWith('.tsx') ? ['typescript', 'jsx', 'decorators-legacy'] : ['jsx']
}

function childrenOf(node: Node): Node[] {
  return Object.entries(node).flatMap(([field, value]) =>
    /Comments$|^comments$|^tokens$|^loc$|^extra$|^errors$/.test(field) ? [] : [value].flat().filter(isNode),
  )
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && typeof (value as Partial<Node>).type === 'string'
}
