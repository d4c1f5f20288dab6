import { LIBRARY } from './library.ts'
import { parse, type Block, type Expression, type Statement } from './parse.ts'
import {
  itemsOf,
  luaArray,
  LuaError,
  luaText,
  LuaValues,
  numberOrThrow,
  tableOrThrow,
  typeName,
  type Globals,
  type LuaValue,
} from './values.ts'

/** Compiles a script once, into functions; the answer is the script's own. */
export function compile(text: string): (globals: Globals) => LuaValue {
  const scope = new Scope()
  const run = block(parse(text), scope)
  return (globals) => {
    const answer = run({ slots: [], outer: undefined, globals })
    return answer === RUNNING ? undefined : answer
  }
}

/** Variables live in slots that are known before the script runs. */
interface Frame {
  readonly slots: LuaValue[]
  readonly outer: Frame | undefined
  readonly globals: Globals
}

type Evaluate = (frame: Frame) => LuaValue
const RUNNING = Symbol('running')
/** The script's answer, or RUNNING when it goes on. */
type Execute = (frame: Frame) => LuaValue | typeof RUNNING

/** The variables of one function. */
class Scope {
  readonly outer: Scope | undefined
  #count = 0
  #visible: Map<string, number> = new Map()

  constructor(outer?: Scope) {
    this.outer = outer
  }

  declare(name: string): number {
    this.#visible.set(name, this.#count)
    return this.#count++
  }

  find(name: string): number | undefined {
    return this.#visible.get(name)
  }

  /** What is declared in a block ends with it. */
  within<T>(compiled: () => T): T {
    const before = this.#visible
    this.#visible = new Map(before)
    const result = compiled()
    this.#visible = before
    return result
  }
}

function block(statements: Block, scope: Scope): Execute {
  const steps = scope.within(() => statements.map((one) => statement(one, scope)))
  return (frame) => {
    for (const step of steps) {
      const answer = step(frame)
      if (answer !== RUNNING) return answer
    }
    return RUNNING
  }
}

function statement(one: Statement, scope: Scope): Execute {
  switch (one.kind) {
    case 'local':
      return local(one.names, one.values, scope)
    case 'assign':
      return assign(
        one.targets.map((target) => assigner(target, scope)),
        one.values.map((value) => expression(value, scope)),
      )
    case 'call': {
      const call = expression(one.call, scope)
      return (frame) => {
        call(frame)
        return RUNNING
      }
    }
    case 'if': {
      const arms = one.arms.map(({ test, body }) => ({ test: expression(test, scope), body: block(body, scope) }))
      const otherwise = block(one.otherwise, scope)
      return (frame) => {
        for (const { test, body } of arms) if (truthy(test(frame))) return body(frame)
        return otherwise(frame)
      }
    }
    case 'for':
      return loop(one, scope)
    case 'while': {
      const test = expression(one.test, scope)
      const body = block(one.body, scope)
      return (frame) => {
        while (truthy(test(frame))) {
          const answer = body(frame)
          if (answer !== RUNNING) return answer
        }
        return RUNNING
      }
    }
    case 'return':
      return expression(one.value, scope)
  }
}

function local(names: readonly string[], values: readonly Expression[], scope: Scope): Execute {
  const isFunction = values[0]?.kind === 'function'
  // A local function sees itself; any other value does not see the name it is given.
  const early = isFunction ? names.map((name) => scope.declare(name)) : undefined
  const evaluate = values.map((value) => expression(value, scope))
  const slots = early ?? names.map((name) => scope.declare(name))
  return (frame) => {
    const values = evaluate.map((value) => value(frame))
    const results = values[0] instanceof LuaValues ? [values[0].get(1), values[0].get(2)] : values
    for (const [index, slot] of slots.entries()) frame.slots[slot] = results[index]
    return RUNNING
  }
}

type Assign = (frame: Frame, value: LuaValue) => void

/** All values are known before the first of them is assigned. */
function assign(targets: readonly Assign[], evaluate: readonly Evaluate[]): Execute {
  return (frame) => {
    const values = evaluate.map((value) => value(frame))
    for (const [index, target] of targets.entries()) target(frame, values[index])
    return RUNNING
  }
}

function assigner(target: Expression, scope: Scope): Assign {
  if (target.kind === 'index') {
    const of = expression(target.of, scope)
    const key = expression(target.key, scope)
    return (frame, value) => void tableOrThrow(of(frame)).set(key(frame), value)
  }
  const slot = target.kind === 'name' ? scope.find(target.name) : undefined
  if (slot === undefined) throw new SyntaxError('Lua: only locals of the same function can be assigned here')
  return (frame, value) => void (frame.slots[slot] = value)
}

function loop(one: Extract<Statement, { kind: 'for' }>, scope: Scope): Execute {
  const from = expression(one.from, scope)
  const to = expression(one.to, scope)
  const step = expression(one.step, scope)
  return scope.within(() => {
    const slot = scope.declare(one.name)
    const body = block(one.body, scope)
    return (frame) => {
      const last = numberOrThrow(to(frame))
      const by = numberOrThrow(step(frame))
      for (let at = numberOrThrow(from(frame)); by > 0 ? at <= last : at >= last; at += by) {
        frame.slots[slot] = at
        const answer = body(frame)
        if (answer !== RUNNING) return answer
      }
      return RUNNING
    }
  })
}

function expression(one: Expression, scope: Scope): Evaluate {
  switch (one.kind) {
    case 'constant':
      return () => one.value
    case 'name':
      return variable(one.name, scope)
    case 'index': {
      const of = expression(one.of, scope)
      const key = expression(one.key, scope)
      return (frame) => tableOrThrow(of(frame)).get(key(frame))
    }
    case 'call': {
      const of = expression(one.of, scope)
      const args = one.args.map((arg) => expression(arg, scope))
      return (frame) => {
        const called = of(frame)
        if (typeof called !== 'function') throw new LuaError(`attempt to call a ${typeName(called)} value`)
        const values = args.map((arg) => arg(frame))
        const last = values.at(-1)
        return called(...(last instanceof LuaValues ? [...values.slice(0, -1), ...last.values()] : values))
      }
    }
    case 'unary':
      return unary(one.operator, expression(one.of, scope))
    case 'binary':
      return binary(one.operator, expression(one.left, scope), expression(one.right, scope))
    case 'table': {
      const items = one.items.map((item) => expression(item, scope))
      return (frame) => luaArray(items.map((item) => item(frame)))
    }
    case 'function': {
      const inner = new Scope(scope)
      for (const name of one.parameters) inner.declare(name)
      const body = block(one.body, inner)
      return (frame) =>
        (...args) => {
          const answer = body({ slots: args.slice(0, one.parameters.length), outer: frame, globals: frame.globals })
          return answer === RUNNING ? undefined : answer
        }
    }
  }
}

function variable(name: string, scope: Scope): Evaluate {
  const own = scope.find(name)
  if (own !== undefined) return (frame) => frame.slots[own]
  for (let outer = scope.outer, hops = 1; outer !== undefined; outer = outer.outer, hops++) {
    const slot = outer.find(name)
    if (slot === undefined) continue
    const distance = hops
    return (frame) => {
      let at = frame
      for (let hop = 0; hop < distance; hop++) at = at.outer!
      return at.slots[slot]
    }
  }
  return (frame) => {
    const value = frame.globals[name] ?? LIBRARY[name]
    // Redis itself raises this: a script must not rely on globals that nobody set.
    if (value === undefined) throw new LuaError(`Script attempted to access nonexistent global variable '${name}'`)
    return value
  }
}

function unary(operator: string, of: Evaluate): Evaluate {
  if (operator === 'not') return (frame) => !truthy(of(frame))
  if (operator === '-') return (frame) => -numberOrThrow(of(frame))
  return (frame) => {
    const value = of(frame)
    return typeof value === 'string' ? value.length : itemsOf(tableOrThrow(value)).length
  }
}

const ARITHMETIC: Record<string, (a: number, b: number) => number> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
  '%': (a, b) => a - Math.floor(a / b) * b,
}

const ORDER: Record<string, (a: string | number, b: string | number) => boolean> = {
  '<': (a, b) => a < b,
  '<=': (a, b) => a <= b,
  '>': (a, b) => a > b,
  '>=': (a, b) => a >= b,
}

function binary(operator: string, left: Evaluate, right: Evaluate): Evaluate {
  const arithmetic = ARITHMETIC[operator]
  if (arithmetic !== undefined) {
    return (frame) => arithmetic(numberOrThrow(left(frame)), numberOrThrow(right(frame)))
  }
  const order = ORDER[operator]
  if (order !== undefined) {
    return (frame) => {
      const [a, b] = [left(frame), right(frame)]
      const comparable = typeof a === typeof b && (typeof a === 'number' || typeof a === 'string')
      if (!comparable) throw new LuaError(`attempt to compare ${typeName(a)} with ${typeName(b)}`)
      return order(a, b as string | number)
    }
  }
  switch (operator) {
    case 'and':
      return (frame) => {
        const value = left(frame)
        return truthy(value) ? right(frame) : value
      }
    case 'or':
      return (frame) => {
        const value = left(frame)
        return truthy(value) ? value : right(frame)
      }
    case '==':
      return (frame) => left(frame) === right(frame)
    case '~=':
      return (frame) => left(frame) !== right(frame)
    case '..':
      return (frame) => `${luaText(left(frame))}${luaText(right(frame))}`
    default:
      throw new SyntaxError(`Lua: '${operator}' is not supported here`)
  }
}

function truthy(value: LuaValue): boolean {
  return value !== undefined && value !== false
}
