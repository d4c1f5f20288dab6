import { expect, test } from 'vitest'
import { withLiterals } from '../../../../src/engines/postgres/drivers/postgres-js.ts'

test('values are written into a statement as bytes, whatever is in them', () => {
  const values = [`'; DROP TABLE x; -- $2 \\`, null, new Uint8Array([0, 255])]
  const text = withLiterals('SELECT $1::text, $2::text, $3::bytea, $1::text', values)
  const hex = Buffer.from(values[0] as string).toString('hex')
  const first = `convert_from(decode('${hex}', 'hex'), 'UTF8')::text`
  expect(text).toBe(`SELECT ${first}, NULL::text, decode('00ff', 'hex')::bytea, ${first}`)
})

test('the tenth value is not the first one, and a missing one is told', () => {
  const values = Array.from({ length: 10 }, (_, index) => String(index))
  expect(withLiterals('$10', values)).toBe(`convert_from(decode('39', 'hex'), 'UTF8')`)
  expect(() => withLiterals('$11', values)).toThrow('more parameters than values')
})
