import type { Finding } from '../../../engine.ts'
import { findings, sentence } from '../../shared/findings.ts'
import { codeOf } from '../errors.ts'
import type { CommandResult } from './commands.ts'

const { ok, note, warning } = findings('mongodb')

/** Does a release wake the waiters? Undefined: the engine would not even try to open a change stream. */
export function checkWakeups(stream: CommandResult | undefined): Finding {
  const id = 'wake-up'
  const meaning = 'Waiters poll, up to a second apart, and no release wakes them.'
  if (stream === undefined) {
    return note(
      id,
      'The client has maxPoolSize 1.',
      `A change stream would occupy the only connection. ${meaning}`,
      'Give the client maxPoolSize 2 or more.',
    )
  }
  if (stream.kind === 'reply') {
    return ok(id, 'A change stream can be opened.', 'A release wakes the waiters at once.')
  }
  const found = sentence(`No change stream can be opened: ${stream.error.message}`)
  if (codeOf(stream.error) === 40_573) {
    return note(id, found, meaning, 'Make the server a replica set, even if it has one member only.')
  }
  return warning(id, found, meaning, 'Allow this user changeStream and find on the collection; the role read has both.')
}
