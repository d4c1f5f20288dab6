import type { Node, Syntax } from './syntax.ts'

export interface LockUses {
  readonly rewritten: { readonly node: Node; readonly text: string; readonly duration?: Node | undefined }[]
  readonly refused: { readonly node: Node; readonly text: string }[]
}

/** What a file does with a lock: `id` is the variable that an `acquire` goes into, `owner` the redlock it comes from. */
export function lockUses(syntax: Syntax, id: Node, owner: string): LockUses {
  const name = id['name'] as string
  const found: LockUses = { rewritten: [], refused: [] }
  const root = syntax.nodes[0]!
  const declarations = syntax.references(name, root).filter((node) => syntax.isDeclaration(node))
  // That of the innermost block around it.
  const declaration = declarations
    .filter((node) => contains(syntax.scope(syntax.parent(node)!), id))
    .toSorted((some, other) => other.start - some.start)[0]
  if (declaration === undefined || syntax.parent(declaration)?.type !== 'VariableDeclarator') {
    found.refused.push({ node: id, text: `${name} is not a variable of this file` })
    return found
  }
  const scope = syntax.scope(syntax.parent(declaration)!)
  const inner = declarations.find((node) => node !== declaration && contains(scope, node))
  if (inner !== undefined) found.refused.push({ node: inner, text: `${name} is declared more than once` })
  if ((declaration as { typeAnnotation?: unknown }).typeAnnotation !== undefined) {
    found.refused.push({ node: declaration, text: `${name} has a type of redlock` })
  }
  for (const use of syntax.references(name, scope)) {
    if (use === declaration) continue
    const rewritten = callOn(syntax, use, name, owner)
    if (rewritten === undefined && !isHarmless(syntax, use)) {
      found.refused.push({
        node: use,
        text: `${syntax.text(syntax.parent(use)!)}: this use of a lock is not understood`,
      })
    } else if (rewritten?.text !== undefined) {
      found.rewritten.push({ ...rewritten, text: rewritten.text })
    }
  }
  return found
}

function contains(outer: Node, inner: Node): boolean {
  return outer.start <= inner.start && inner.end <= outer.end
}

interface Rewritten {
  readonly node: Node
  /** Undefined if it stays as it is. */
  readonly text: string | undefined
  readonly duration?: Node | undefined
}

/** `lock.release()`, `lock.extend(ms)`, `redlock.release(lock)` and `redlock.extend(lock, ms)`, whose result nobody uses. */
function callOn(syntax: Syntax, use: Node, name: string, owner: string): Rewritten | undefined {
  const parent = syntax.parent(use)!
  const isOwn = /^(Optional)?MemberExpression$/.test(parent.type) && parent['object'] === use
  const call = isOwn ? syntax.parent(parent)! : parent
  if (!/^(Optional)?CallExpression$/.test(call.type)) return undefined
  const callee = call['callee'] as Node
  const args = call['arguments'] as Node[]
  const isTheirs = !isOwn && args[0] === use && (callee['object'] as Node | undefined)?.['name'] === owner
  if ((!isOwn && !isTheirs) || (isOwn && callee !== parent)) return undefined
  const method = (callee['property'] as Node)['name']
  const [duration] = isOwn ? args : args.slice(1)

  if (method === 'release' && duration === undefined && isStatement(syntax, call)) {
    return { node: call, text: isTheirs ? `${name}.release()` : undefined }
  }
  if (method !== 'extend' || duration === undefined || args.length > (isOwn ? 1 : 2)) return undefined
  const text = `${name}.extend(${syntax.text(duration)})`
  if (isStatement(syntax, call)) return { node: call, text: isTheirs ? text : undefined, duration }
  // `lock = await lock.extend(ms)`: the lease stays the same one.
  const waiting = syntax.parent(call)
  const assigned = waiting?.type === 'AwaitExpression' ? syntax.parent(waiting) : undefined
  const isSame = assigned?.type === 'AssignmentExpression' && (assigned['left'] as Node)['name'] === name
  if (!isSame || syntax.parent(assigned)?.type !== 'ExpressionStatement') return undefined
  return { node: assigned, text: `await ${text}`, duration }
}

/** Whether nobody looks at what it results in: `await lock.release().catch(…)` as a statement. */
function isStatement(syntax: Syntax, call: Node): boolean {
  let node = call
  for (let outer = syntax.parent(node); outer !== undefined; node = outer, outer = syntax.parent(outer)) {
    if (outer.type === 'ExpressionStatement') return true
    const isChained = outer.type.endsWith('MemberExpression') && outer['object'] === node
    const isCalled = outer.type.endsWith('CallExpression') && outer['callee'] === node
    const isPassed =
      outer.type === 'AwaitExpression' || (outer.type === 'UnaryExpression' && outer['operator'] === 'void')
    if (!isChained && !isCalled && !isPassed) return false
  }
  return false
}

/** Whether it is there, which names it is for, and where it is assigned. */
function isHarmless(syntax: Syntax, use: Node): boolean {
  const parent = syntax.parent(use)!
  if (parent.type.endsWith('MemberExpression')) {
    return parent['object'] === use && (parent['property'] as Node)['name'] === 'resources'
  }
  if (parent.type === 'IfStatement' || parent.type === 'ConditionalExpression') return parent['test'] === use
  if (parent.type === 'UnaryExpression') return parent['operator'] === '!'
  if (parent.type === 'BinaryExpression')
    return [parent['left'], parent['right']].some((side) => isNothing(side as Node))
  if (parent.type !== 'AssignmentExpression' || parent['left'] !== use) return false
  const right = parent['right'] as Node
  const call = right['argument'] as Node | undefined
  const method = ((call?.['callee'] as Node | undefined)?.['property'] as Node | undefined)?.['name']
  return isNothing(right) || (right.type === 'AwaitExpression' && (method === 'acquire' || method === 'extend'))
}

function isNothing(node: Node): boolean {
  return node.type === 'NullLiteral' || (node.type === 'Identifier' && node['name'] === 'undefined')
}
