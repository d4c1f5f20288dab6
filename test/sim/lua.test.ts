import { describe, expect, test } from 'vitest'
import { compile } from '../../sim/lua/interpret.ts'
import { luaArray, LuaError } from '../../sim/lua/values.ts'

function value(text: string, globals = {}): unknown {
  return compile(text)(globals)
}

describe('the interpreter of the scripts', () => {
  test.each([
    ['return 1 + 2 * 3', 7],
    ['return (1 + 2) * 3', 9],
    ['return -2 + 5', 3],
    ["return '10' + 1", 11],
    ["return 'a' .. 'b' .. 1", 'ab1'],
    ['return not nil', true],
    ['return nil and 1 or 2', 2],
    ['return false or nil', undefined],
    ["return 'abc' < 'abd'", true],
    ["return #'four'", 4],
    ["return string.sub('1700000001234567', 1, -7)", '1700000001'],
    ["return string.format('%.0f', 9007199254740991)", '9007199254740991'],
    ["return tonumber('x') or 5", 5],
    ['return math.max(1, 7, 3)', 7],
    ['local a, b = 1 return b', undefined],
    ['local t = {1, 2, 3} t[#t + 1] = 4 return #t', 4],
    ['local sum = 0 for i = 1, 10, 3 do sum = sum + i end return sum', 22],
    ['for i = 1, 3 do if i == 2 then return i end end return 9', 2],
    ['local x = 1 if true then local x = 2 end return x', 1],
    ['local function f(n) if n < 2 then return 1 end return n * f(n - 1) end return f(5)', 120],
    ['-- a comment\nreturn 1', 1],
    ['local a, b = 1, 2 a, b = b, a return a * 10 + b', 21],
    ["local a, b = string.match('12 x y', '^(%d+) (.+)$') return b .. a", 'x y12'],
    ["return cjson.encode('a')", '"a"'],
    ['local i = 0 while i < 5 do i = i + 2 end return i', 6],
    ['while true do return 7 end', 7],
    ['local t = {1, 2, 3, 4} return math.max(0, unpack(t, 2, 3))', 3],
  ])('%s', (text, expected) => {
    expect(value(text)).toBe(expected)
  })

  test('sees its globals and no others', () => {
    expect(value('return KEYS[2]', { KEYS: luaArray(['a', 'b']) })).toBe('b')
    expect(() => value('return nothing')).toThrow(/nonexistent global variable 'nothing'/)
  })

  test.each(['return 1 < nil', 'return {} + 1', 'local x = nil return x.y', "return 'a' < 1"])(
    '%s fails as in Lua',
    (text) => {
      expect(() => value(text)).toThrow(LuaError)
    },
  )

  test.each([
    'repeat i = 1 until true',
    'return "double quotes"',
    'x = 1',
    'for k in pairs(t) do end',
    'return 1 return 2 )',
  ])('refuses what it does not know: %s', (text) => {
    expect(() => value(text)).toThrow(SyntaxError)
  })
})
