import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

/** A file of this package, found by the package's name: the sources and what is built of them are not equally deep in it. */
export function packageFile(path: string): URL {
  return new URL(path, pathToFileURL(createRequire(import.meta.url).resolve('ringfence/package.json')))
}
