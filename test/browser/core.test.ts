import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { EdgeVM } from '@edge-runtime/vm'
import { rolldown } from 'rolldown'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { oneBrowser } from './browser.ts'

const browser = oneBrowser()
let code: string
let imported: readonly string[]

const server = createServer((request, response) => {
  const isScript = request.url === '/program.js'
  response.writeHead(200, { 'content-type': isScript ? 'text/javascript' : 'text/html' })
  response.end(
    isScript ? code : '<!doctype html><link rel="icon" href="data:,"><script type="module" src="program.js"></script>',
  )
})

beforeAll(async () => {
  const input = path.join(import.meta.dirname, 'programs/memory.mjs')
  const made = await rolldown({ input, platform: 'browser' })
  const { output } = await made.generate({ format: 'esm' })
  code = output[0].code
  imported = output[0].imports
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
})
afterAll(() => server.close())

test('ringfence and ringfence/memory are bundled for a browser without any import of Node', () => {
  expect(imported).toEqual([])
  expect(code).not.toMatch(/\b(from|import\(|require\()\s*["']node:/)
})

/** What `programs/memory.mjs` leaves. */
interface Result {
  readonly order: readonly string[]
  readonly reentrant: string
  readonly busy: boolean
  readonly owner: string
}

async function inBrowser(): Promise<Result> {
  const page = await browser.visit(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  const handle = await page.waitForFunction(() => (globalThis as { result?: unknown }).result)
  return (await handle.jsonValue()) as Result
}

/** It has no modules, so the program is the body of a function. */
async function inEdgeRuntime(): Promise<Result> {
  const runtime = new EdgeVM()
  expect(runtime.evaluate('typeof EdgeRuntime + typeof process + typeof MessageChannel')).toBe(
    'stringundefinedundefined',
  )
  await runtime.evaluate<Promise<void>>(`(async () => { ${code.replace(/^export \{\s*\};?$/m, '')} })()`)
  return JSON.parse(runtime.evaluate<string>('JSON.stringify(globalThis.result)')) as Result
}

test.each([
  ['a browser', inBrowser],
  ['the Edge Runtime', inEdgeRuntime],
])('leases of memory() work in %s, and what is missing there is said', async (_, run) => {
  const result = await run()
  const { order } = result
  expect(order.filter((entry) => /\D/.test(entry))).toEqual([
    'first begins',
    'first ends',
    'second begins',
    'second ends',
  ])
  const [first, second] = order.filter((entry) => /^\d+$/.test(entry))
  expect(BigInt(second!)).toBeGreaterThan(BigInt(first!))
  expect(result.reentrant).toMatch(/^reentrant: expected false, because this runtime has no AsyncLocalStorage/)
  expect(result.busy).toBe(true)
  expect(result.owner).toMatch(/^[0-9a-f]{32}@browser$/)
})
