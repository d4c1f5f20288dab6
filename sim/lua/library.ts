import {
  itemsOf,
  LuaError,
  LuaTable,
  luaText,
  LuaValues,
  numberOrThrow,
  tableOrThrow,
  toNumber,
  typeName,
  type Globals,
  type LuaFunction,
} from './values.ts'

const regulars = new Map<string, RegExp>()

/** Of Lua's patterns, those with classes for digits and words or anything at all, and with at most two captures. */
function regular(pattern: string): RegExp {
  const known = regulars.get(pattern)
  if (known !== undefined) return known
  if (!/^\^?([\w: ]|\((-\?)?%[wd]\+\)|%[wd]\+|\(\.\+\))+\$?$/.test(pattern))
    throw new SyntaxError(`Lua: the pattern '${pattern}' is not supported here`)
  const made = new RegExp(pattern.replaceAll('%w', '[A-Za-z0-9]').replaceAll('%d', '[0-9]'), 's')
  regulars.set(pattern, made)
  return made
}

/** What scripts find without asking for it, besides `redis`. */
export const LIBRARY: Globals = {
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
  unpack: (table, from, to) => {
    const [first, last] = [numberOrThrow(from ?? 1), numberOrThrow(to ?? itemsOf(tableOrThrow(table)).length)]
    const places = Array.from({ length: Math.max(last - first + 1, 0) }, (_, index) => first + index)
    return new LuaValues(places.map((place, index) => [index + 1, tableOrThrow(table).get(place)]))
  },
  tostring: (value) => (typeof value === 'boolean' || value === undefined ? String(value ?? 'nil') : luaText(value)),
  cjson: new LuaTable([
    [
      'encode',
      (value) => {
        if (typeof value !== 'string' && typeof value !== 'boolean' && !Number.isSafeInteger(value))
          throw new SyntaxError(`Lua: cjson.encode of a ${typeName(value)} is not supported here`)
        return JSON.stringify(value)
      },
    ],
  ]),
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
        if (found?.[2] !== undefined)
          return new LuaValues([
            [1, found[1]],
            [2, found[2]],
          ])
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
