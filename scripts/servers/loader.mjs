import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync, renameSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { isElf, libraryFolders } from './libraries.mjs'

const places = ['usr/lib64', 'lib64', 'usr/lib/x86_64-linux-gnu', 'lib/x86_64-linux-gnu']

/** The dynamic linker among the extracted packages, which belongs to the C library beside it. */
export function loaderOf(root) {
  const found = places.map((place) => path.join(root, place, 'ld-linux-x86-64.so.2')).find((file) => existsSync(file))
  if (!found) throw new Error('the packages contain no dynamic linker for x64')
  return found
}

/**
 * Puts a script of the same name in the place of every program beside the given ones, which starts it by the packages'
 * own dynamic linker and libraries. So the programs find each other (initdb starts postgres), and the name that a
 * program was called by stays what it was (redis-server is another name of redis-check-rdb).
 */
export function startByOwnLoader(root, programs) {
  const loader = path.relative(root, loaderOf(root))
  const libraries = libraryFolders(root).map((folder) => path.relative(root, folder))
  for (const folder of new Set(programs.map((program) => path.dirname(program)))) {
    const up = path.relative(folder, root)
    const real = path.join(folder, '.real')
    mkdirSync(real, { recursive: true })
    for (const name of readdirSync(folder)) {
      const file = path.join(folder, name)
      // Another name of a program stays one, now of its script.
      if (!lstatSync(file).isFile() || !isElf(file)) continue
      renameSync(file, path.join(real, name))
      writeFileSync(
        file,
        `#!/bin/sh
here=\${0%/*}
root=$here/${up}
exec "$root/${loader}" --argv0 "$0" --library-path "${libraries.map((each) => `$root/${each}`).join(':')}" "$here/.real/${name}" "$@"
`,
      )
      chmodSync(file, 0o755)
    }
  }
}
