import { parse, type Block, type Expression, type Statement } from './parse.ts'

/** A Lua value: nil is undefined, a table is a Map (arrays from 1 on). */
export type LuaValue = undefined | boolean | number | string | LuaTable | LuaFunction
export type LuaFunction = (...args: LuaValue[]) => LuaValue
export class LuaTable extends Map<LuaValue, LuaValue> {}
/** What `pcall` returns: the values of a `local` with several names. */
class LuaValues extends LuaTable {}
export type Globals = Readonly<Record<string, LuaValue>>

/** A script that failed: by itself, or because a call of it did. */
export class LuaError extends Error {
  override readonly name = 'LuaError'
}

export function luaArray(items: readonly LuaValue[]): LuaTable {
  const table = new LuaTable()
  for (const [index, item] of items.entries()) if (item !== undefined) table.set(index + 1, item)
  return table
}

/** The array part of a table: up to the first nil. */
export function itemsOf(table: LuaTable): LuaValue[] {
  const items: LuaValue[] = []
  for (let item = table.get(1); item !== undefined; item = table.get(items.length + 1)) items.push(item)
  return items
}

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
      return assign(one.target, expression(one.value, scope), scope)
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

function assign(target: Expression, value: Evaluate, scope: Scope): Execute {
  if (target.kind === 'index') {
    const of = expression(target.of, scope)
    const key = expression(target.key, scope)
    return (frame) => {
      tableOrThrow(of(frame)).set(key(frame), value(frame))
      return RUNNING
    }
  }
  const slot = target.kind === 'name' ? scope.find(target.name) : undefined
  if (slot === undefined) throw new SyntaxError('Lua: only locals of the same function can be assigned here')
  return (frame) => {
    frame.slots[slot] = value(frame)
    return RUNNING
  }
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
        return called(...args.map((arg) => arg(frame)))
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

/** Strings that look like numbers count as numbers in arithmetic. */
function numberOrThrow(value: LuaValue): number {
  const number = toNumber(value)
  if (number === undefined) throw new LuaError(`attempt to perform arithmetic on a ${typeName(value)} value`)
  return number
}

function toNumber(value: LuaValue): number | undefined {
  if (typeof value === 'number') return value
  if (typeof value !== 'string' || !/^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$/.test(value)) return undefined
  return Number(value)
}

function tableOrThrow(value: LuaValue): LuaTable {
  if (value instanceof LuaTable) return value
  throw new LuaError(`attempt to index a ${typeName(value)} value`)
}

function typeName(value: LuaValue): string {
  if (value === undefined) return 'nil'
  return value instanceof LuaTable ? 'table' : typeof value
}

/** `%.14g`, which is why the scripts format their numbers themselves. */
function luaText(value: LuaValue): string {
  if (typeof value === 'string') return value
  if (typeof value !== 'number') throw new LuaError(`attempt to concatenate a ${typeName(value)} value`)
  if (Number.isInteger(value) && Math.abs(value) < 1e14) return String(value)
  return value
    .toPrecision(14)
    .replace(/\.?0+(?=e|$)/, '')
    .replace(/e([+-])(\d)$/, 'e$10$2')
}

/** Of Lua's patterns, those with classes for digits and words, and with one capture. */
function regular(pattern: string): RegExp {
  if (!/^([\w: ]|\((-\?)?%[wd]\+\)|%[wd]\+)+$/.test(pattern))
    throw new SyntaxError(`Lua: the pattern '${pattern}' is not supported here`)
  return new RegExp(pattern.replaceAll('%w', '[A-Za-z0-9]').replaceAll('%d', '[0-9]'))
}

const LIBRARY: Globals = {
  tonumber: (value) => toNumber(value),
  type: (value) => typeName(value),
  pcall: (called, ...args) => {
    try {
      return new LuaValues([
        [1, true],
        [2, (called as LuaFunction)(...args)],
      ])
    } catch (error) {
      if (!(error instanceof LuaError)) throw error
      return new LuaValues([
        [1, false],
        [2, error.message],
      ])
    }
  },
  tostring: (value) => (typeof value === 'boolean' || value === undefined ? String(value ?? 'nil') : luaText(value)),
  math: new LuaTable([
    ['floor', (value) => Math.floor(numberOrThrow(value))],
    ['max', (...all) => Math.max(...all.map(numberOrThrow))],
    ['min', (...all) => Math.min(...all.map(numberOrThrow))],
  ]),
  string: new LuaTable([
    [
      'format',
      (pattern, value) => {
        if (pattern !== '%.0f')
          throw new SyntaxError('Lua: string.format with another pattern than %.0f is not supported here')
        return numberOrThrow(value).toFixed(0)
      },
    ],
    [
      'match',
      (text, pattern) => {
        const found = regular(luaText(pattern)).exec(luaText(text))
        return found?.[1] ?? found?.[0]
      },
    ],
    [
      'sub',
      (text, from, to) => {
        const whole = luaText(text)
        const place = (at: number): number => (at < 0 ? Math.max(whole.length + at + 1, 0) : at)
        return whole.slice(Math.max(place(numberOrThrow(from)) - 1, 0), place(numberOrThrow(to ?? -1)))
      },
    ],
  ]),
}
