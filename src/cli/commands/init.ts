import { openStore, storeFailure, type Store } from '../engines/store.ts'
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
    const did = store.init === undefined ? await nothingFor(store) : await store.init()
    report(call, 'this store', { store: store.url, did })
    return EXIT.ok
  } catch (error) {
    throw storeFailure(error, store)
  } finally {
    await store.close()
  }
}

/** A store that cannot be reached, or whose user may not read it, does need something. */
async function nothingFor({ runs }: Store): Promise<readonly string[]> {
  await runs.runs('init', { limit: 1 })
  return []
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
