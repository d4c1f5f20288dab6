import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { EXIT, Failure } from './exit-codes.ts'

/** Throws when the command is not there: better than to find out after waiting for the lease. */
export function assertExecutable(command: string): void {
  const candidates = command.includes('/')
    ? [command]
    : (process.env['PATH'] ?? '/usr/bin:/bin').split(delimiter).map((folder) => join(folder, command))
  const states = candidates.map(stateOf)
  if (states.includes('executable')) return
  if (states.includes('there'))
    throw new Failure(EXIT.notExecutable, `${command}: not executable`, `chmod +x ${command}, or name its interpreter`)
  throw new Failure(
    EXIT.notFound,
    `${command}: command not found`,
    'a shell’s own words (cd, &&, |) need a shell: ringfence run … -- sh -c "…"',
  )
}

function stateOf(path: string): 'executable' | 'there' | 'missing' {
  if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) return 'missing'
  try {
    accessSync(path, constants.X_OK)
    return 'executable'
  } catch {
    return 'there'
  }
}
