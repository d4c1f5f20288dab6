import { EXIT } from './exit-codes.ts'
import { withLocks, type Call } from './session.ts'

/** Creates what the engine needs on its servers. */
export async function init(call: Call): Promise<number> {
  const { output } = call
  return withLocks(
    call,
    () => ({}),
    async ({ engine, url }) => {
      const did = (await engine.init?.()) ?? []
      if (output.json) output.object({ engine: engine.name, url, did })
      else if (!output.quiet) {
        for (const text of did) output.line(text)
        if (did.length === 0) output.line(`${engine.name} needs nothing`)
      }
      return EXIT.ok
    },
  )
}
