import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { fencedHandler, fencedMiddleware, memoryGuard } from '../../../src/guards/index.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'

const HEADER = 'fencing-token'
const TOKEN = 1_767_225_600_000_000n

const header = fc.oneof(
  fc.bigInt({ min: TOKEN, max: TOKEN + 9n }).map((token) => `${token};engine=redis%3Aa`),
  fc
    .tuple(
      fc.oneof(fc.constantFrom('1', '0', '-1', '1e9', '9'.repeat(19), '9'.repeat(20), ''), fc.string({ maxLength: 8 })),
      fc.constantFrom(';engine=', '; engine=', ';', ',', ';ENGINE=', ''),
      fc.oneof(
        fc.constantFrom('redis%3Aa', 'b', '%', '%ff', '%00', '__proto__', ''),
        fc.string({ unit: 'binary', maxLength: 12 }),
      ),
    )
    .map((parts) => parts.join('')),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constant('1'.repeat(100_000)),
)
const resource = fc.constantFrom('a', 'b', '__proto__', 'x'.repeat(300))

const urlOf = ({ url }: { readonly url: string }): string => url

test(
  'whatever headers come, the handler of the guard answers 200, 400, 412 or 428, and no older token enters',
  { timeout: FUZZ_TIMEOUT_MS },
  async () => {
    const requests = fc.array(fc.tuple(resource, fc.option(header, { nil: undefined })), { minLength: 1, maxLength: 6 })
    const seen = new Set<number>()
    await always(requests, { runs: 300, part: 1 / 2 }, async (all) => {
      const last = new Map<string, { token: bigint; engine: string }>()
      const guard = memoryGuard()
      const handle = fencedHandler<
        { readonly url: string; readonly headers: { get(name: string): string | null } },
        [],
        Response
      >(guard, { resource: urlOf }, ({ url }, { token, engine }) => {
        const before = last.get(url) ?? { token: 0n, engine }
        expect([engine, token >= before.token]).toEqual([before.engine, true])
        last.set(url, { token, engine })
        return new Response('done')
      })
      for (const [url, value] of all) {
        const { status } = await handle({ url, headers: { get: () => value ?? null } })
        expect([200, 400, 412, 428]).toContain(status)
        seen.add(status)
      }
    })
    expect(seen).toEqual(new Set([200, 400, 412, 428]))
  },
)

test(
  'nor does the middleware let an older one through, or leave a request without an answer',
  { timeout: FUZZ_TIMEOUT_MS },
  async () => {
    const values = fc.option(fc.oneof(header, fc.array(header, { maxLength: 3 })), { nil: undefined })
    const requests = fc.array(fc.tuple(resource, values), { minLength: 1, maxLength: 6 })
    await always(requests, { runs: 300, part: 1 / 2 }, async (all) => {
      const guard = memoryGuard()
      const middleware = fencedMiddleware<{ url: string; headers: Record<string, string | string[] | undefined> }>(
        guard,
        { resource: urlOf },
      )
      for (const [url, value] of all) {
        const outcome = await new Promise<unknown>((resolve) => {
          const response = { statusCode: 200, setHeader: () => undefined, end: () => resolve(response.statusCode) }
          middleware({ url, headers: { [HEADER]: value } }, response, (error) => resolve(error ?? 'next'))
        })
        expect(['next', 400, 412, 428]).toContain(outcome)
      }
    })
  },
)
