import { openStore, storeFailure } from '../engines/store.ts'
import { EXIT } from '../exit-codes.ts'
import { withLocks, type Call } from '../session.ts'
import { storeUrl } from '../settings.ts'

/** Creates what the engine needs on its servers; with --store, what that store needs instead. */
export async function init(call: Call): Promise<number> {
  // A store of the environment is for the programs, whose user may create nothing.
  if (call.line.options.has('store')) return initStore(call)
  return withLocks(call, async ({ engine, url }) => {
    report(call, engine.name, { engine: engine.name, url, did: (await engine.init?.()) ?? [] })
    return EXIT.ok
  })
}

async function initStore(call: Call): Promise<number> {
  const store = await openStore(storeUrl(call.line.options, call.config, call.output)!)
  try {
    report(call, 'this store', { store: store.url, did: (await store.init?.()) ?? [] })
    return EXIT.ok
  } catch (error) {
    throw storeFailure(error, store)
  } finally {
    await store.close()
  }
}

interface InitResult {
  readonly engine?: string
  readonly store?: string
  readonly url?: string
  readonly did: readonly string[]
}

function report({ output }: Call, name: string, done: InitResult): void {
  if (output.json) return output.object(done)
  if (output.quiet) return
  // A statement has several lines.
  for (const text of done.did) for (const one of text.split('\n')) output.line(one)
  if (done.did.length === 0) output.line(`${name} needs nothing`)
}
