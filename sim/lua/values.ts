/** A Lua value: nil is undefined, a table is a Map (arrays from 1 on). */
export type LuaValue = undefined | boolean | number | string | LuaTable | LuaFunction
export type LuaFunction = (...args: LuaValue[]) => LuaValue
export class LuaTable extends Map<LuaValue, LuaValue> {}
/** What `pcall`, `unpack` and a match with two captures return: the values of a `local` with several names, or the last arguments of a call. */
export class LuaValues extends LuaTable {}
export type Globals = Readonly<Record<string, LuaValue>>

/** A script that failed: by itself, or because a call of it did. */
export class LuaError extends Error {
  override readonly name = 'LuaError'
}

export function luaArray(items: readonly LuaValue[]): LuaTable {
  const table = new LuaTable()
  for (let at = 0; at < items.length; at++) if (items[at] !== undefined) table.set(at + 1, items[at])
  return table
}

/** The array part of a table: up to the first nil. */
export function itemsOf(table: LuaTable): LuaValue[] {
  const items: LuaValue[] = []
  for (let item = table.get(1); item !== undefined; item = table.get(items.length + 1)) items.push(item)
  return items
}

/** Strings that look like numbers count as numbers in arithmetic. */
export function numberOrThrow(value: LuaValue): number {
  const number = toNumber(value)
  if (number === undefined) throw new LuaError(`attempt to perform arithmetic on a ${typeName(value)} value`)
  return number
}

export function toNumber(value: LuaValue): number | undefined {
  if (typeof value === 'number') return value
  if (typeof value !== 'string') return undefined
  if (!/^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$/.test(value)) return undefined
  return Number(value)
}

export function tableOrThrow(value: LuaValue): LuaTable {
  if (value instanceof LuaTable) return value
  throw new LuaError(`attempt to index a ${typeName(value)} value`)
}

export function typeName(value: LuaValue): string {
  if (value === undefined) return 'nil'
  return value instanceof LuaTable ? 'table' : typeof value
}

/** `%.14g`, which is why the scripts format their numbers themselves. */
export function luaText(value: LuaValue): string {
  if (typeof value === 'string') return value
  if (typeof value !== 'number') throw new LuaError(`attempt to concatenate a ${typeName(value)} value`)
  if (Number.isInteger(value) && Math.abs(value) < 1e14) return String(value)
  return value
    .toPrecision(14)
    .replace(/\.?0+(?=e|$)/, '')
    .replace(/e([+-])(\d)$/, 'e$10$2')
}
