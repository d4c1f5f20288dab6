import { itemsOf, luaArray, LuaError, LuaTable, type LuaValue } from './lua/values.ts'

/** What a server answers: RESP2 in plain values. A status is a string too, an error is an instance of `ServerError`. */
export type Reply = string | number | null | readonly Reply[] | ServerError

export class ServerError extends Error {
  override readonly name = 'ServerError'
}

export function argument(value: LuaValue): string {
  if (typeof value === 'string') return value
  // As Redis does it: 17 significant digits, without an exponent for whole numbers.
  if (typeof value === 'number') return Number.isInteger(value) ? value.toFixed(0) : String(value)
  throw new LuaError('Lua redis lib command arguments must be strings or integers')
}

export function toLua(reply: Reply, mayBeStatus: boolean): LuaValue {
  if (reply === null) return false
  if (mayBeStatus && reply === 'OK') return new LuaTable([['ok', 'OK']])
  if (reply instanceof ServerError) throw reply
  return typeof reply === 'object' ? luaArray(reply.map((item) => toLua(item, false))) : reply
}

export function fromLua(value: LuaValue): Reply {
  if (typeof value === 'string') return value
  if (typeof value === 'number') return Math.trunc(value)
  if (value === true) return 1
  if (!(value instanceof LuaTable)) return null
  const error = value.get('err')
  if (typeof error === 'string') throw new ServerError(error)
  const status = value.get('ok')
  return typeof status === 'string' ? status : itemsOf(value).map(fromLua)
}
