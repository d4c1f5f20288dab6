import type { Finding } from '../../../engine.ts'
import type { Reply } from '../doctor.ts'

interface Options {
  readonly capped?: unknown
  readonly collation?: { readonly locale?: unknown }
}

/** Is the collection one whose documents stay, and are named as they are written? */
export function checkCollection(name: string, collections: Reply, indexes: Reply): readonly Finding[] {
  const id = 'mongodb/collection'
  if (collections.kind === 'error') {
    const found = `could not look at ${name}: ${collections.error.message}`
    const remedy = 'Allow this user listCollections and listIndexes; the role read has both.'
    return [{ id, severity: 'note', found, meaning: 'This was not checked.', remedy }]
  }
  const [listed] = firstBatch(collections) as { type?: unknown; options?: Options }[]
  if (listed === undefined) {
    return [{ id, severity: 'ok', found: `${name} is not there yet`, meaning: 'The first lease creates it.' }]
  }
  const findings = [...kind(name, listed.type, listed.options ?? {}), ...expiry(name, indexes)]
  if (findings.length > 0) return findings.map((finding) => ({ id, ...finding }))
  return [{ id, severity: 'ok', found: `${name} is a plain collection`, meaning: 'Nothing deletes its counters.' }]
}

type Diagnosis = Omit<Finding, 'id'>

function* kind(name: string, type: unknown, { capped, collation }: Options): Iterable<Diagnosis> {
  if (type !== 'collection' || capped === true) {
    yield {
      severity: 'critical',
      found: `${name} is ${capped === true ? 'a capped collection' : `a ${String(type)}`}`,
      meaning: 'Its documents can’t be updated, or are deleted for newer ones, and with them their counters.',
      remedy: 'Use a plain collection: mongodb(db, { collection }).',
    }
  }
  if (collation !== undefined && collation.locale !== 'simple') {
    yield {
      severity: 'warning',
      found: `${name} has the collation ${String(collation.locale)}`,
      meaning: 'Names that it takes for equal are one resource: locks exclude more than they should.',
      remedy: 'Use a collection without a collation.',
    }
  }
}

/** A document that is deleted takes its counter with it: the next token is 1 again. */
function* expiry(name: string, indexes: Reply): Iterable<Diagnosis> {
  const all = firstBatch(indexes) as { name?: unknown; expireAfterSeconds?: unknown }[]
  for (const index of all.filter(({ expireAfterSeconds }) => expireAfterSeconds !== undefined)) {
    yield {
      severity: 'critical',
      found: `the index ${String(index.name)} of ${name} deletes documents by their age`,
      meaning:
        'A deleted document takes its counter with it, so tokens start again at 1 and a guard refuses new holders.',
      remedy: 'Drop the index.',
    }
  }
}

function firstBatch(reply: Reply): readonly unknown[] {
  if (reply.kind === 'error') return []
  const { cursor } = reply.value as { cursor?: { firstBatch?: unknown } }
  return Array.isArray(cursor?.firstBatch) ? cursor.firstBatch : []
}
