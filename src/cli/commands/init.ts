import { EXIT } from '../exit-codes.ts'
import { withLocks, type Call } from '../session.ts'

/** Creates what the engine needs on its servers. */
export async function init(call: Call): Promise<number> {
  const { output } = call
  return withLocks(call, async ({ engine, url }) => {
    const did = (await engine.init?.()) ?? []
    if (output.json) output.object({ engine: engine.name, url, did })
    else if (!output.quiet) {
      // A statement has several lines.
      for (const text of did) for (const one of text.split('\n')) output.line(one)
      if (did.length === 0) output.line(`${engine.name} needs nothing`)
    }
    return EXIT.ok
  })
}
