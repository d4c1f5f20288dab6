/**
 * A parser for the part of Lua that lock scripts are written in: locals, functions, if, while, numeric for, tables, calls, and all
 * operators. Anything else is a syntax error, so that a script which needs more is noticed and not half understood.
 */
export type Expression =
  | { readonly kind: 'constant'; readonly value: string | number | boolean | undefined }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'index'; readonly of: Expression; readonly key: Expression }
  | { readonly kind: 'call'; readonly of: Expression; readonly args: readonly Expression[] }
  | { readonly kind: 'unary'; readonly operator: string; readonly of: Expression }
  | { readonly kind: 'binary'; readonly operator: string; readonly left: Expression; readonly right: Expression }
  | { readonly kind: 'table'; readonly items: readonly Expression[] }
  | { readonly kind: 'function'; readonly parameters: readonly string[]; readonly body: Block }

export type Statement =
  | { readonly kind: 'local'; readonly names: readonly string[]; readonly values: readonly Expression[] }
  | { readonly kind: 'assign'; readonly targets: readonly Expression[]; readonly values: readonly Expression[] }
  | { readonly kind: 'call'; readonly call: Expression }
  | { readonly kind: 'if'; readonly arms: readonly { test: Expression; body: Block }[]; readonly otherwise: Block }
  | {
      readonly kind: 'for'
      readonly name: string
      readonly from: Expression
      readonly to: Expression
      readonly step: Expression
      readonly body: Block
    }
  | { readonly kind: 'while'; readonly test: Expression; readonly body: Block }
  | { readonly kind: 'return'; readonly value: Expression }

export type Block = readonly Statement[]

type Token = { readonly kind: 'name' | 'number' | 'string' | 'symbol' | 'end'; readonly text: string }

const KEYWORDS = new Set(
  'and do else elseif end false for function if local nil not or return then true while'.split(' '),
)
const UNKNOWN_KEYWORDS = new Set('break goto in repeat until'.split(' '))
const TOKEN = /--[^\n]*|\s+|([A-Za-z_]\w*)|(\d+(?:\.\d+)?)|'([^'\\\n]*)'|(~=|==|<=|>=|\.\.|[-+*/%#<>=(){}[\],;.])/y

function tokens(text: string): Token[] {
  const found: Token[] = []
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex
    const match = TOKEN.exec(text)
    if (match === null) throw new SyntaxError(`Lua: cannot read ${JSON.stringify(text.slice(at, at + 20))}`)
    const [, name, number, string, symbol] = match
    if (name !== undefined) {
      if (UNKNOWN_KEYWORDS.has(name)) throw new SyntaxError(`Lua: '${name}' is not supported here`)
      found.push({ kind: KEYWORDS.has(name) ? 'symbol' : 'name', text: name })
    } else if (number !== undefined) found.push({ kind: 'number', text: number })
    else if (string !== undefined) found.push({ kind: 'string', text: string })
    else if (symbol !== undefined) found.push({ kind: 'symbol', text: symbol })
  }
  found.push({ kind: 'end', text: '' })
  return found
}

/** How tightly operators bind, as in Lua's manual; `..` binds to the right. */
const BINDING: Record<string, number> = {
  or: 1,
  and: 2,
  '<': 3,
  '>': 3,
  '<=': 3,
  '>=': 3,
  '~=': 3,
  '==': 3,
  '..': 4,
  '+': 5,
  '-': 5,
  '*': 6,
  '/': 6,
  '%': 6,
}
const UNARY_BINDING = 7

export function parse(text: string): Block {
  return new Parser(tokens(text)).chunk()
}

class Parser {
  readonly #tokens: readonly Token[]
  #at = 0

  constructor(all: readonly Token[]) {
    this.#tokens = all
  }

  chunk(): Block {
    const block = this.#block()
    if (this.#next.kind !== 'end') throw this.#unexpected()
    return block
  }

  get #next(): Token {
    return this.#tokens[this.#at]!
  }

  #is(symbol: string): boolean {
    return this.#next.kind === 'symbol' && this.#next.text === symbol
  }

  #accept(symbol: string): boolean {
    if (!this.#is(symbol)) return false
    this.#at++
    return true
  }

  #expect(symbol: string): void {
    if (!this.#accept(symbol)) throw this.#unexpected(symbol)
  }

  #name(): string {
    if (this.#next.kind !== 'name') throw this.#unexpected('a name')
    return this.#tokens[this.#at++]!.text
  }

  #unexpected(wanted?: string): SyntaxError {
    return new SyntaxError(`Lua: ${wanted === undefined ? '' : `expected ${wanted}, `}got '${this.#next.text}'`)
  }

  #block(): Block {
    const statements: Statement[] = []
    while (!['end', 'else', 'elseif'].some((word) => this.#is(word)) && this.#next.kind !== 'end') {
      statements.push(this.#statement())
      this.#accept(';')
    }
    return statements
  }

  #statement(): Statement {
    if (this.#accept('local')) return this.#local()
    if (this.#accept('if')) return this.#if()
    if (this.#accept('for')) return this.#for()
    if (this.#accept('while')) return this.#while()
    if (this.#accept('return')) {
      const isBare = this.#next.kind === 'end' || ['end', 'else', 'elseif', ';'].some((word) => this.#is(word))
      return { kind: 'return', value: isBare ? { kind: 'constant', value: undefined } : this.#expression() }
    }
    const target = this.#suffixed()
    if (target.kind === 'call') return { kind: 'call', call: target }
    const targets: Expression[] = [target]
    while (this.#accept(',')) targets.push(this.#suffixed())
    this.#expect('=')
    if (!targets.every(({ kind }) => kind === 'name' || kind === 'index')) throw this.#unexpected()
    return { kind: 'assign', targets, values: this.#list() }
  }

  #local(): Statement {
    if (this.#accept('function')) {
      const name = this.#name()
      return { kind: 'local', names: [name], values: [this.#function()] }
    }
    const names = [this.#name()]
    while (this.#accept(',')) names.push(this.#name())
    return { kind: 'local', names, values: this.#accept('=') ? this.#list() : [] }
  }

  #function(): Expression {
    this.#expect('(')
    const parameters: string[] = []
    if (!this.#is(')')) {
      do parameters.push(this.#name())
      while (this.#accept(','))
    }
    this.#expect(')')
    const body = this.#block()
    this.#expect('end')
    return { kind: 'function', parameters, body }
  }

  #if(): Statement {
    const arms: { test: Expression; body: Block }[] = []
    let otherwise: Block = []
    do {
      const test = this.#expression()
      this.#expect('then')
      arms.push({ test, body: this.#block() })
    } while (this.#accept('elseif'))
    if (this.#accept('else')) otherwise = this.#block()
    this.#expect('end')
    return { kind: 'if', arms, otherwise }
  }

  #for(): Statement {
    const name = this.#name()
    this.#expect('=')
    const from = this.#expression()
    this.#expect(',')
    const to = this.#expression()
    const step: Expression = this.#accept(',') ? this.#expression() : { kind: 'constant', value: 1 }
    this.#expect('do')
    const body = this.#block()
    this.#expect('end')
    return { kind: 'for', name, from, to, step, body }
  }

  #while(): Statement {
    const test = this.#expression()
    this.#expect('do')
    const body = this.#block()
    this.#expect('end')
    return { kind: 'while', test, body }
  }

  #list(): Expression[] {
    const list = [this.#expression()]
    while (this.#accept(',')) list.push(this.#expression())
    return list
  }

  #expression(least = 0): Expression {
    let left = this.#unary()
    for (;;) {
      const operator = this.#next.text
      const binding = this.#next.kind === 'symbol' ? BINDING[operator] : undefined
      if (binding === undefined || binding <= least) return left
      this.#at++
      left = { kind: 'binary', operator, left, right: this.#expression(operator === '..' ? binding - 1 : binding) }
    }
  }

  #unary(): Expression {
    for (const operator of ['not', '-', '#']) {
      if (this.#accept(operator)) return { kind: 'unary', operator, of: this.#expression(UNARY_BINDING - 1) }
    }
    return this.#simple()
  }

  #simple(): Expression {
    const { kind, text } = this.#next
    if (kind === 'number' || kind === 'string') {
      this.#at++
      return { kind: 'constant', value: kind === 'number' ? Number(text) : text }
    }
    if (this.#accept('nil')) return { kind: 'constant', value: undefined }
    if (this.#accept('true')) return { kind: 'constant', value: true }
    if (this.#accept('false')) return { kind: 'constant', value: false }
    if (this.#accept('function')) return this.#function()
    if (this.#accept('{')) {
      const items = this.#is('}') ? [] : this.#list()
      this.#expect('}')
      return { kind: 'table', items }
    }
    return this.#suffixed()
  }

  #suffixed(): Expression {
    let expression: Expression
    if (this.#accept('(')) {
      expression = this.#expression()
      this.#expect(')')
    } else expression = { kind: 'name', name: this.#name() }
    for (;;) {
      if (this.#accept('.')) {
        expression = { kind: 'index', of: expression, key: { kind: 'constant', value: this.#name() } }
      } else if (this.#accept('[')) {
        expression = { kind: 'index', of: expression, key: this.#expression() }
        this.#expect(']')
      } else if (this.#accept('(')) {
        const args = this.#is(')') ? [] : this.#list()
        this.#expect(')')
        expression = { kind: 'call', of: expression, args }
      } else return expression
    }
  }
}
