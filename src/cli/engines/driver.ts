import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { EXIT, Failure, usage } from '../exit-codes.ts'
import { messageOf } from '../output.ts'
import { redacted } from '../settings.ts'

type Module = Readonly<Record<string, unknown>>

export interface Installed {
  readonly name: string
  readonly module: Module
}

/** The first of the packages that is installed: beside ringfence, or where it was called. */
export async function installed(names: readonly string[]): Promise<Installed | undefined> {
  for (const name of names) {
    const module = (await importOr(name)) ?? (await importFromHere(name))
    if (module !== undefined) return { name, module }
  }
  return undefined
}

/** The same, for an engine that cannot do without. */
export async function loadDriver(names: readonly string[], engine: string): Promise<Installed> {
  const found = await installed(names)
  if (found !== undefined) return found
  // `mysql2/promise` is a part of a package; npm would take it for a repository of GitHub.
  const [first, ...others] = names.map((name) => name.split('/')[0])
  throw new Failure(
    EXIT.engine,
    `${engine} needs a driver, and none is installed`,
    `npm install ${first}${others.length > 0 ? ` (or ${others.join(', ')})` : ''}, beside ringfence or in this folder`,
  )
}

async function importFromHere(name: string): Promise<Module | undefined> {
  let file: string
  try {
    file = createRequire(join(process.cwd(), 'package.json')).resolve(name)
  } catch {
    return undefined
  }
  return importOr(pathToFileURL(file).href)
}

async function importOr(specifier: string): Promise<Module | undefined> {
  try {
    return (await import(specifier)) as Module
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Any other failure is the driver's own: it is there and does not work.
    if (code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND') return undefined
    throw error
  }
}

/** What a driver throws before anything is connected is about the URL. */
export function asUsage<T>(url: string, driver: string, create: () => T): T {
  try {
    return create()
  } catch (error) {
    throw usage(`--engine: expected a URL that ${driver} takes, got ${redacted(url)}: ${messageOf(error)}`)
  }
}
