import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import { rowsIn } from '../engines/shared/sql/client.ts'
import { GuardError } from '../errors.ts'
import { givingWay, passes, type Fenced, type GuardContext } from './guard.ts'
import { fenceOf, rowCount } from './rows.ts'

/** Options of a fence that is in a column of your own table. */
export interface ColumnOptions {
  /** How many parameters of yours come before the fence's, where parameters have numbers (PostgreSQL). Default 0. */
  after?: number
  /** Default `fence_token`: a bigint, null or 0 until the first write. */
  token?: string
  /** Default `fence_engine`: text, null or empty until the first write. */
  engine?: string
  /** An engine whose tokens give way to the lease's: what `adopt` does, for this statement. */
  from?: string
}

/**
 * The fence of one row in two columns of its own, checked and raised by the statement that writes the row. A first
 * statement that sets nothing else is `enter` for that row.
 *
 *     const fence = guard.column(lease, { after: 2 })
 *     const result = await pool.query(
 *       `UPDATE item SET quantity = $1, ${fence.set} WHERE id = $2 AND ${fence.where}`, [5, 42, ...fence.params])
 *     await fence.check(result, () => pool.query(`SELECT ${fence.select} FROM item WHERE id = $1 FOR UPDATE`, [42]))
 */
export interface ColumnFence {
  /** For SET: raises the fence. */
  readonly set: string
  /** For WHERE: true unless the row has seen a newer token, or one of another engine. */
  readonly where: string
  /** The parameters of `set` and `where`, where parameters have numbers. */
  readonly params: readonly string[]
  /** The same where parameters are identified by position (`?`): first those of `set`, … */
  readonly setParams: readonly string[]
  /** … then, after your own parameters in between, those of `where`. */
  readonly whereParams: readonly string[]
  /** For SELECT: the fence of a row, as `check` reads it. */
  readonly select: string
  /**
   * Returns the number of rows that were written. If it is 0, `look` selects the fence of the same row: if that does not let the
   * lease pass, this rejects; if there is no row, or your own conditions left it out, this returns 0.
   */
  check(result: unknown, look: () => Promise<unknown>): Promise<number>
}

/** How a database writes the parts of the predicate. */
export interface ColumnSyntax {
  readonly quote: (name: string) => string
  /** The nth parameter of a statement, counted from 1. */
  readonly placeholder: (n: number) => string
  /** A token given as text, as a number of 64 bits. */
  readonly tokenOf: (placeholder: string) => string
  /** A number of 64 bits as text, so that no driver rounds it. */
  readonly textOf: (column: string) => string
  /** Byte for byte, regardless of the column's collation. */
  readonly isSame: (column: string, placeholder: string) => string
}

export function columnFence(
  lease: Fenced,
  options: ColumnOptions,
  syntax: ColumnSyntax,
  context: GuardContext,
): ColumnFence {
  optionsOrThrow(options, ['after', 'token', 'engine', 'from'])
  const { after = 0 } = options
  const from = options.from === undefined ? undefined : givingWay(options.from, lease)
  if (!Number.isInteger(after) || after < 0) {
    throw new RangeError(`after: expected a whole number from 0 on, got ${shown(after)}`)
  }
  const token = syntax.quote(columnName(options.token ?? 'fence_token', 'token'))
  const engine = syntax.quote(columnName(options.engine ?? 'fence_engine', 'engine'))
  const parameter = (n: number): string => syntax.placeholder(after + n)
  const [tokenParam, engineParam, fromParam] = [parameter(1), parameter(2), parameter(3)]
  const given = [String(lease.token), lease.engine]
  const adopted = from === undefined ? [] : [from]
  const newer = `${token} <= ${syntax.tokenOf(tokenParam)} AND ${syntax.isSame(engine, engineParam)}`
  const givesWay = from === undefined ? '' : ` OR ${syntax.isSame(engine, fromParam)}`
  return {
    set: `${token} = ${syntax.tokenOf(tokenParam)}, ${engine} = ${engineParam}`,
    where: `(${token} IS NULL OR (${token} = 0 AND coalesce(${engine}, '') = '') OR (${newer})${givesWay})`,
    params: [...given, ...adopted],
    setParams: given,
    whereParams: [...given, ...adopted],
    select: `${syntax.textOf(token)} AS token, ${engine} AS engine`,
    async check(result, look) {
      const count = rowCount(result)
      if (count > 0) return count
      if (typeof look !== 'function') throw new TypeError(`look: expected a function, got ${shown(look)}`)
      const [row] = rowsIn(await look()) ?? []
      if (row === undefined || row['token'] === null) return 0
      const seen = fenceOf({ token: row['token'], engine: row['engine'] ?? '' })
      if (seen.engine === '') {
        if (seen.token === 0n) return 0
        throw unknownEngine(lease, seen.token)
      }
      if (passes(lease, seen, from)) return 0
      throw context.refusal(lease, lease.resources[0]!, seen)
    },
  }
}

/** Without an engine, a number cannot be compared with ours. */
function unknownEngine({ resources, engine }: Fenced, token: bigint): GuardError {
  return new GuardError(
    `the row has the token ${token} without an engine, so it cannot be compared with one of '${engine}': set its engine ` +
      'column to the identity of the engine that granted it, or both columns to what they were before the first write',
    resources,
    { transient: false },
  )
}

function columnName(name: unknown, option: string): string {
  if (typeof name === 'string' && /^[a-z_][\w$]*$/i.test(name)) return name
  throw new TypeError(`${option}: expected the name of a column, got ${shown(name)}`)
}
