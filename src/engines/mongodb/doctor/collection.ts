import type { Finding } from '../../../engine.ts'
import { findings, sentence } from '../../shared/findings.ts'
import { property, text } from '../../shared/shape.ts'
import type { CommandResult } from './commands.ts'

const { ok, note, warning, critical } = findings('mongodb')
const ID = 'collection'

/** Do the documents of the collection stay, and are their names compared byte by byte? */
export function checkCollection(name: string, collections: CommandResult, indexes: CommandResult): readonly Finding[] {
  if (collections.kind === 'error') {
    const found = sentence(`The collection ${name} could not be looked at: ${collections.error.message}`)
    const remedy = 'Allow this user listCollections and listIndexes; the role read has both.'
    return [note(ID, found, 'This was not checked.', remedy)]
  }
  const [listed] = firstBatch(collections)
  if (listed === undefined) {
    return [ok(ID, `The collection ${name} does not exist yet.`, 'The first lease creates it.')]
  }
  const problems = [...kind(name, listed), ...expiry(name, indexes)]
  if (problems.length > 0) return problems
  return [ok(ID, `${name} is a plain collection.`, 'Nothing deletes its counters.')]
}

function* kind(name: string, listed: unknown): Iterable<Finding> {
  const type = text(listed, 'type') ?? 'thing without a type'
  const options = property(listed, 'options')
  const isCapped = property(options, 'capped') === true
  if (type !== 'collection' || isCapped) {
    yield critical(
      ID,
      `${name} is ${isCapped ? 'a capped collection' : `a ${type}`}.`,
      'Its documents cannot be updated, or are deleted for newer ones, and with them their counters.',
      'Use a plain collection: mongodb(db, { collection }).',
    )
  }
  const collation = property(options, 'collation')
  const locale = text(collation, 'locale')
  if (collation !== undefined && locale !== 'simple') {
    yield warning(
      ID,
      `${name} has ${locale === undefined ? 'a collation' : `the collation ${locale}`}.`,
      'Names that are equal in this collation are one resource: locks exclude more than they should.',
      'Use a collection without a collation.',
    )
  }
}

/** A document that is deleted takes its counter with it: the next token is 1 again. */
function* expiry(name: string, indexes: CommandResult): Iterable<Finding> {
  const deleting = firstBatch(indexes).filter((index) => property(index, 'expireAfterSeconds') !== undefined)
  for (const index of deleting) {
    yield critical(
      ID,
      `The index ${text(index, 'name') ?? 'without a name'} of ${name} deletes documents by their age.`,
      'A deleted document takes its counter with it, so tokens start again at 1 and a guard refuses new holders.',
      'Drop the index.',
    )
  }
}

function firstBatch(reply: CommandResult): readonly unknown[] {
  if (reply.kind === 'error') return []
  const batch = property(property(reply.value, 'cursor'), 'firstBatch')
  return Array.isArray(batch) ? batch : []
}
