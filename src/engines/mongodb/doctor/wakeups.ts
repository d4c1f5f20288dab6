import type { Finding } from '../../../engine.ts'
import type { Reply } from '../doctor.ts'
import { codeOf } from '../requests.ts'

/** Do waiters hear of a release? Undefined when the engine would not even try. */
export function checkWakeups(stream: Reply | undefined): Finding {
  const id = 'mongodb/wake-up'
  const meaning = 'Waiters poll, up to a second apart, instead of hearing of a release.'
  if (stream === undefined) {
    return {
      id,
      severity: 'note',
      found: 'maxPoolSize 1',
      meaning: `A change stream would occupy the only connection. ${meaning}`,
      remedy: 'Give the client maxPoolSize 2 or more.',
    }
  }
  if (stream.kind === 'reply') {
    return { id, severity: 'ok', found: 'a change stream', meaning: 'Waiters hear of a release at once.' }
  }
  const found = `no change stream: ${stream.error.message}`
  if (codeOf(stream.error) === 40_573) {
    return { id, severity: 'note', found, meaning, remedy: 'Make the server a replica set, if only of one member.' }
  }
  return {
    id,
    severity: 'warning',
    found,
    meaning,
    remedy: 'Allow this user changeStream and find on the collection; the role read has both.',
  }
}
