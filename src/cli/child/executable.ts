import { accessSync, closeSync, constants, openSync, readSync, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { EXIT, Failure } from '../exit-codes.ts'

/** Throws when the command is not there: better than to find out after waiting for the lease. */
export function assertExecutable(command: string): void {
  const candidates = command.includes('/')
    ? [command]
    : (process.env['PATH'] ?? '/usr/bin:/bin').split(delimiter).map((folder) => join(folder, command))
  const states = candidates.map(stateOf)
  const first = states.indexOf('executable')
  if (first >= 0) return assertInterpreter(command, candidates[first]!)
  if (command.includes('/') && states.includes('folder'))
    throw new Failure(EXIT.notExecutable, `${command}: is a folder`, 'name a program in it')
  if (states.includes('there'))
    throw new Failure(EXIT.notExecutable, `${command}: not executable`, `chmod +x ${command}, or name its interpreter`)
  if (command.includes('/') && states.includes('hidden'))
    throw new Failure(EXIT.notExecutable, `${command}: this user may not look there`, 'run it as a user who may')
  // As execvp does it: a folder of PATH that cannot be read is passed over.
  throw new Failure(
    EXIT.notFound,
    `${command}: command not found`,
    'a shell’s own words (cd, &&, |) need a shell: ringfence run … -c "…"',
  )
}

/** The kernel would say of the command itself that it is not there. */
function assertInterpreter(command: string, path: string): void {
  const interpreter = /^#![ \t]*([^\0\s]+)/.exec(beginningOf(path))?.[1]
  if (interpreter === undefined) return
  const state = stateOf(interpreter)
  if (state === 'executable') return
  const next = 'correct its first line, which begins with #!'
  if (state === 'missing')
    throw new Failure(EXIT.notFound, `${command}: its interpreter ${interpreter} was not found`, next)
  throw new Failure(EXIT.notExecutable, `${command}: its interpreter ${interpreter} cannot be executed`, next)
}

/** As much as the kernel looks at; nothing of a file that this user may execute but not read. */
function beginningOf(path: string): string {
  let file: number | undefined
  try {
    file = openSync(path, constants.O_RDONLY)
    const bytes = Buffer.alloc(256)
    return bytes.toString('latin1', 0, readSync(file, bytes))
  } catch {
    return ''
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

function stateOf(path: string): 'executable' | 'there' | 'folder' | 'missing' | 'hidden' {
  try {
    const stats = statSync(path, { throwIfNoEntry: false })
    if (stats?.isDirectory() === true) return 'folder'
    if (stats?.isFile() !== true) return 'missing'
  } catch (error) {
    return ['EACCES', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '') ? 'hidden' : 'missing'
  }
  try {
    accessSync(path, constants.X_OK)
    return 'executable'
  } catch {
    return 'there'
  }
}
