import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { installed } from '../engines/driver.ts'
import { EXIT, Failure, usage } from '../exit-codes.ts'
import { migrateRedlock, type Remark } from '../migrate/redlock.ts'
import type { Parse } from '../migrate/syntax.ts'
import type { Call } from '../session.ts'

const PARSER = '@babel/parser'
const SOURCE = /\.[cm]?[jt]sx?$/
const DECLARATIONS = /\.d\.[cm]?ts$/

interface Result {
  readonly file: string
  readonly done: readonly Remark[]
  readonly left: readonly Remark[]
  readonly isUnread?: boolean
}

/** Rewrites a program that uses another library. It changes no file without --write. */
export async function migrate({ line, output }: Call): Promise<number> {
  const [library, ...places] = line.names
  if (library !== 'redlock')
    throw usage(`migrate: expected redlock, got ${library ?? 'nothing'}`, 'ringfence migrate redlock src')
  if (places.length === 0) throw usage('migrate: expected files or folders', 'ringfence migrate redlock src')
  const parse = await loadParser()
  const isToWrite = line.options.has('write')
  const results: Result[] = []
  for (const file of await sourcesIn(places)) {
    const result = await rewritten(file, parse, { api: line.options.has('api'), isToWrite })
    if (result.done.length > 0 || result.left.length > 0) results.push(result)
  }
  // What was not looked at may still use redlock.
  const unread = results.filter(({ isUnread }) => isUnread === true)
  const exitCode = unread.length > 0 ? EXIT.no : EXIT.ok
  if (output.json) {
    output.object({ written: isToWrite, files: results })
    return exitCode
  }
  for (const { file, done, left } of results) {
    for (const each of done) output.line(`${file}:${each.line}: ${each.text}`)
    for (const each of left) output.line({ style: 'yellow', text: `${file}:${each.line}: left: ${each.text}` })
  }
  const count = results.filter(({ done }) => done.length > 0).length
  const files = count === 1 ? '1 file' : `${count} files`
  if (isToWrite) output.say(`${files} rewritten`)
  else output.say(`${files} to rewrite; nothing is changed without --write`)
  if (unread.length > 0) {
    output.complain(`${unread.length === 1 ? '1 file' : `${unread.length} files`} could not be read`)
    output.advise('put right what is said of them above, and run it again')
  }
  return exitCode
}

async function rewritten(
  file: string,
  parse: Parse,
  { api, isToWrite }: { readonly api: boolean; readonly isToWrite: boolean },
): Promise<Result> {
  try {
    const before = await readFile(file, 'utf8')
    const { code, ...result } = migrateRedlock(before, { file, parse, api })
    if (code !== before && isToWrite) await writeFile(file, code)
    return { file, ...result }
  } catch (error) {
    return { file, done: [], left: [{ line: 1, text: `cannot be read: ${(error as Error).message}` }], isUnread: true }
  }
}

async function loadParser(): Promise<Parse> {
  const found = await installed([PARSER])
  if (found === undefined) {
    throw new Failure(
      EXIT.failed,
      `migrate reads programs with ${PARSER}, which is not installed`,
      `npm install --no-save ${PARSER}, beside ringfence or in this folder`,
    )
  }
  const { module } = found
  return (module['parse'] ?? (module['default'] as { parse: unknown }).parse) as Parse
}

/** The programs among these files, and below these folders; not those of others, and nothing that is hidden. */
async function sourcesIn(places: readonly string[]): Promise<string[]> {
  const files: string[] = []
  for (const place of places) {
    const found = await stat(place).catch((error: NodeJS.ErrnoException) => {
      throw usage(`migrate: expected a file or a folder, got '${place}' (${error.code})`)
    })
    if (!found.isDirectory()) {
      files.push(place)
      continue
    }
    const entries = await readdir(place, { withFileTypes: true })
    const wanted = entries.filter(({ name }) => name !== 'node_modules' && !name.startsWith('.'))
    const below = wanted.filter((entry) => entry.isDirectory()).map(({ name }) => path.join(place, name))
    const own = wanted.filter((entry) => entry.isFile() && SOURCE.test(entry.name) && !DECLARATIONS.test(entry.name))
    files.push(...own.map(({ name }) => path.join(place, name)), ...(await sourcesIn(below)))
  }
  return files.sort()
}
