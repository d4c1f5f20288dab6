import { existsSync } from 'node:fs'
import path from 'node:path'
import type { Election } from '../../../src/engines/redis/election.ts'
import type { NotSentError } from '../../../src/engines/redis/errors.ts'

/** The shipped election, of which every field can be read and written. */
export interface Readable {
  readonly Election: typeof Election
  readonly NotSentError: typeof NotSentError
}

/** A change of its code that makes it wrong; what is looked for must be there once. */
export type Change = readonly [find: string, replace: string]

/**
 * An election keeps what it knows to itself, so its states could be told apart by their whole history only. Here its own code
 * is loaded with the one difference that what is private in it is not.
 */
export async function readable(change?: Change): Promise<Readable> {
  // Only who explores elections needs the bundler.
  const { rolldown } = await import('rolldown')
  const folder = path.join(root(), 'src/engines/redis')
  const entry = `export { Election } from './election.ts'\nexport { NotSentError } from './errors.ts'\n`
  const bundle = await rolldown({
    input: 'entry',
    platform: 'node',
    plugins: [
      {
        name: 'entry',
        resolveId: (source) => (source === 'entry' ? path.join(folder, 'entry-of-exploration.ts') : undefined),
        load: (id) => (id.endsWith('entry-of-exploration.ts') ? entry : undefined),
      },
    ],
  })
  const { output } = await bundle.generate({ format: 'esm' })
  await bundle.close()
  let code = output[0].code.replaceAll(/#(?=[a-z])/gi, '_')
  if (change !== undefined) {
    const [find, replace] = change
    if (code.split(find).length !== 2) throw new Error(`not there once: ${find}`)
    code = code.replace(find, () => replace)
  }
  return (await import(`data:text/javascript,${encodeURIComponent(code)}`)) as Readable
}

function root(): string {
  let folder = import.meta.dirname
  while (!existsSync(path.join(folder, 'package.json'))) folder = path.dirname(folder)
  return folder
}
