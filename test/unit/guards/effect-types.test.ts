import { expect, test } from 'vitest'
import { resultText } from '../../../src/guards/effect.ts'
import type { Fenced, MongodbGuard, SqlGuard } from '../../../src/guards/index.ts'

/** Compiled, and not run: what `once` takes by its type is what it can record. */
async function effects(sql: SqlGuard, mongodb: MongodbGuard, lease: Fenced): Promise<void> {
  const { value } = await sql.once(lease, 'a', async () => ({ id: 7, tags: ['x'], note: null, more: { of: true } }))
  value.tags.map((tag) => tag.length)
  await sql.once(lease, 'b', () => undefined)
  await sql.once(lease, 'c', async () => {})
  await mongodb.once(lease, 'd', async (): Promise<{ id: number; name?: string }> => ({ id: 7 }))
  // @ts-expect-error a Date would come back as text
  await sql.once(lease, 'e', () => new Date())
  // @ts-expect-error JSON has no bigint
  await sql.once(lease, 'f', async () => ({ id: 7n }))
  // @ts-expect-error nor a Map
  await mongodb.once(lease, 'g', () => [new Map([[1, 2]])])
}

test('what the types refuse is refused when it comes all the same, with what to do', () => {
  expect(effects).toBeTypeOf('function')
  expect(() => resultText(new Date())).toThrow('result: expected what JSON can express, got a Date; convert it')
  expect(() => resultText({ id: 7n })).toThrow(
    'result.id: expected what JSON can express, got the bigint 7; convert it',
  )
  expect(() => resultText([new Map()])).toThrow('result[0]: expected what JSON can express, got a Map; convert it')
})
