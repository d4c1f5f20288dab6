import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { casGuard, objectStore, type CasGuard, type CasStore, type Fenced } from '../../src/guards/index.ts'
import { startEtcd, type EtcdServer } from '../../harness/servers/etcd.ts'
import { startObjects, type ObjectsServer } from '../../harness/servers/objects.ts'
import { freshResource, guardSuite, leaseOf, type Bench } from './suite.ts'

let objects: ObjectsServer
let s3: ObjectsServer
let etcd: EtcdServer

beforeAll(async () => {
  objects = await startObjects()
  s3 = await startObjects({ etag: 'content' })
  etcd = await startEtcd()
})

afterAll(async () => {
  await objects?.[Symbol.asyncDispose]()
  await s3?.[Symbol.asyncDispose]()
  await etcd?.stop()
})

function objectUrl(key: string): string {
  return `${objects.url}/${encodeURIComponent(key)}`
}

function store(): CasStore<Uint8Array> {
  return objectStore({ url: objectUrl })
}

function s3Store(): CasStore<Uint8Array> {
  return objectStore({ url: (key) => `${s3.url}/${encodeURIComponent(key)}`, fenceIn: 'body' })
}

async function writeAll<Value>(guard: CasGuard<Value>, lease: Fenced, value: Value): Promise<void> {
  for (const resource of [...lease.resources].sort()) await guard.write(lease, resource, () => value)
}

const text = (value: Uint8Array | undefined): string => Buffer.from(value ?? []).toString()

function add(amount: number): (value: Uint8Array | undefined) => Uint8Array {
  return (value) => Buffer.from(String(Number(text(value)) + amount))
}

function objectsBench(): Bench<CasGuard<Uint8Array>> {
  return {
    guard: (options) => casGuard(store(), options),
    read: async (resource) => Number(text((await store().read(resource))?.value)),
    write: (guard, lease, value) => writeAll(guard, lease, Buffer.from(String(value))),
  }
}

guardSuite('objects over HTTP', objectsBench, { oneByOne: true })

guardSuite<CasGuard<Uint8Array>>(
  'objects over HTTP whose ETag is made of the content, as that of S3',
  () => ({
    guard: (options) => casGuard(s3Store(), options),
    read: async (resource) => Number(text((await s3Store().read(resource))?.value)),
    write: (guard, lease, value) => writeAll(guard, lease, Buffer.from(String(value))),
  }),
  { oneByOne: true },
)

interface EtcdAnswer {
  readonly succeeded?: boolean
  readonly kvs?: readonly { readonly value: string; readonly mod_revision: string }[]
}

const base64 = (value: string): string => Buffer.from(value).toString('base64')

/** etcd by its revisions: what any other store with compare-and-set comes down to. */
function etcdStore(): CasStore<number> {
  return {
    async read(key) {
      const { kvs } = (await etcd.call('kv/range', { key: base64(key) })) as EtcdAnswer
      const [found] = kvs ?? []
      if (found === undefined) return undefined
      return { ...JSON.parse(Buffer.from(found.value, 'base64').toString()), version: found.mod_revision }
    },
    async write(key, next, version = '0') {
      const compare = [{ key: base64(key), target: 'MOD', result: 'EQUAL', mod_revision: version }]
      const success = [{ request_put: { key: base64(key), value: base64(JSON.stringify(next)) } }]
      const { succeeded } = (await etcd.call('kv/txn', { compare, success })) as EtcdAnswer
      return succeeded === true
    },
  }
}

guardSuite<CasGuard<number>>(
  'etcd',
  () => ({
    guard: (options) => casGuard(etcdStore(), options),
    read: async (resource) => (await etcdStore().read(resource))?.value ?? 0,
    write: writeAll,
  }),
  { oneByOne: true },
)

describe('compare-and-set', () => {
  test('a write between the read and the write of another is seen: all of twenty increments at once count', async () => {
    const guard = casGuard(etcdStore())
    const resource = freshResource()
    const increments = Array.from({ length: 20 }, () => guard.write(leaseOf(resource, 1n), resource, (n = 0) => n + 1))
    const results = await Promise.all(increments)
    expect(results.sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, index) => index + 1))
  })

  test('an older holder that read before a newer one entered can not write after it', async () => {
    const guard = casGuard(etcdStore())
    const resource = freshResource()
    await guard.write(leaseOf(resource, 1n), resource, () => 100)
    let runs = 0
    const late = guard.write(leaseOf(resource, 1n), resource, async (n = 0) => {
      runs++
      await guard.enter(leaseOf(resource, 2n))
      return n - 30
    })
    await expect(late).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: 2n })
    expect(runs).toBe(1)
    expect((await etcdStore().read(resource))?.value).toBe(100)
  })

  test('what was entered and not written has no value; what was written without a guard has no fence', async () => {
    const guard = casGuard(store())
    const [entered, plain] = [freshResource(), freshResource()]
    await guard.enter(leaseOf(entered, 1n))
    expect(await store().read(entered)).toMatchObject({
      value: undefined,
      fence: expect.stringMatching(/^1 redis%3A \w+$/) as string,
    })
    await guard.write(leaseOf(entered, 1n), entered, (value) => Buffer.from(`was ${typeof value}`))
    expect(text((await store().read(entered))?.value)).toBe('was undefined')
    await guard.write(leaseOf(entered, 1n), entered, () => Buffer.from(''))
    expect((await store().read(entered))?.value).toHaveLength(0)

    await fetch(`${objects.url}/${encodeURIComponent(plain)}`, { method: 'PUT', body: 'plain' })
    await guard.enter(leaseOf(plain, 1n))
    expect(text((await store().read(plain))?.value)).toBe('plain')
  })

  describe.each(['header', 'body'] as const)(
    'a transport that sends a PUT again because its answer was lost, fence in the %s',
    (fenceIn) => {
      test('does not make one write two', async () => {
        const resource = freshResource()
        let lost = 0
        const repeating = objectStore({
          url: objectUrl,
          fenceIn,
          async fetch(to, init) {
            const answer = await fetch(to, init)
            if (init.method === 'GET') return answer
            lost++
            return fetch(to, init)
          },
        })
        const guard = casGuard(repeating)
        const lease = leaseOf(resource, 1n)
        await guard.enter(lease)
        expect(text(await guard.write(lease, resource, add(10)))).toBe('10')
        let calls = 0
        const second = await guard.write(lease, resource, (value) => (calls++, add(10)(value)))
        expect([text(second), calls, lost, guard.rejections]).toEqual(['20', 1, 3, 0])
        expect(text((await repeating.read(resource))?.value)).toBe('20')
      })

      test('nor when others have written before it looks again', async () => {
        const resource = freshResource()
        const calm = casGuard(objectStore({ url: objectUrl, fenceIn }))
        const lease = leaseOf(resource, 1n)
        let others = 0
        const repeating = objectStore({
          url: objectUrl,
          fenceIn,
          async fetch(to, init) {
            const answer = await fetch(to, init)
            if (init.method === 'GET') return answer
            // The same holder in another task, and then a newer one.
            for (const token of [1n, 1n, 2n]) {
              others++
              await calm.write(leaseOf(resource, token), resource, add(1))
            }
            return fetch(to, init)
          },
        })
        expect(text(await casGuard(repeating).write(lease, resource, add(10)))).toBe('10')
        expect(text((await repeating.read(resource))?.value)).toBe(String(10 + others))
      })
    },
  )

  test('a storage whose ETag does not change with the fence is refused, with what to do instead', async () => {
    const guard = casGuard(objectStore({ url: (key) => `${s3.url}/${encodeURIComponent(key)}` }))
    const resource = freshResource()
    await guard.write(leaseOf(resource, 1n), resource, () => Buffer.from('1'))
    await expect(guard.enter(leaseOf(resource, 2n))).rejects.toMatchObject({
      code: 'GUARD',
      transient: false,
      message: expect.stringContaining("fenceIn: 'body'") as string,
    })
  })

  test('a first line that is no fence is a part of the value', async () => {
    const resource = freshResource()
    await fetch(`${s3.url}/${encodeURIComponent(resource)}`, { method: 'PUT', body: 'one\ntwo' })
    const guard = casGuard(s3Store())
    await guard.enter(leaseOf(resource, 1n))
    expect(text((await s3Store().read(resource))?.value)).toBe('one\ntwo')
    const raw = await (await fetch(`${s3.url}/${encodeURIComponent(resource)}`)).text()
    expect(raw).toMatch(/^ringfence-fence: 1 redis%3A \w+\none\ntwo$/)
  })

  test('entering again writes nothing', async () => {
    const guard = casGuard(store())
    const resource = freshResource()
    await guard.enter(leaseOf(resource, 1n))
    const before = await store().read(resource)
    await guard.enter(leaseOf(resource, 1n))
    expect(await store().read(resource)).toEqual(before)
  })

  test('a store that refuses every write is given up', async () => {
    const resource = freshResource()
    const full: CasStore<number> = { read: async () => undefined, write: async () => false }
    await expect(casGuard(full).enter(leaseOf(resource, 1n))).rejects.toThrow(
      'was written by others 100 times in a row',
    )
  })

  test('something else in the place of a fence is an error, not a pass', async () => {
    const odd: CasStore<number> = { ...etcdStore(), read: async () => ({ value: 1, fence: 'hello', version: '1' }) }
    await expect(casGuard(odd).enter(leaseOf('a', 1n))).rejects.toThrow("is not a fence: 'hello'")
  })

  test('an object that is deleted between read and write is read again', async () => {
    const resource = freshResource()
    const objects = store()
    let reads = 0
    const guard = casGuard<Uint8Array>({
      write: (...args) => objects.write(...args),
      read: async (key) =>
        reads++ === 0 ? { value: undefined, fence: undefined, version: '"gone"' } : objects.read(key),
    })
    await guard.write(leaseOf(resource, 1n), resource, () => Buffer.from('1'))
    expect(reads).toBe(2)
  })

  test('answers that are none are errors: 503, and no ETag', async () => {
    const guard = casGuard(store())
    objects.status = 503
    await expect(guard.enter(leaseOf('a', 1n))).rejects.toThrow("unexpected answer 503 to GET of 'a'")
    objects.status = 200
    await expect(guard.enter(leaseOf('a', 1n))).rejects.toThrow("the answer to GET of 'a' has no ETag")
    objects.status = undefined
  })

  test('a store that does not answer is given up in time', async () => {
    const silent: CasStore<number> = { read: () => new Promise(() => undefined), write: async () => true }
    await expect(casGuard(silent, { requestTimeout: 50 }).enter(leaseOf('a', 1n))).rejects.toThrow(
      'no answer within 50 ms',
    )
  })

  test('arguments that can not be are refused by name', async () => {
    const guard = casGuard(etcdStore())
    await expect(guard.write(leaseOf('a', 1n), 'b', () => 1)).rejects.toThrow(
      "resource: expected one of the lease, got 'b'",
    )
    await expect(guard.write(leaseOf('a', 1n), 'a', 1 as never)).rejects.toThrow('transform: expected a function')
    expect(() => casGuard({} as never)).toThrow('store: expected an object with read and write')
    expect(() => casGuard(etcdStore(), { key: 'a' as never })).toThrow('key: expected a function')
    expect(() => objectStore({} as never)).toThrow('url: expected a function')
    expect(() => objectStore({ url: () => '', fenceIn: 'footer' as never })).toThrow(
      "fenceIn: expected 'header' or 'body'",
    )
    expect(() => objectStore({ url: () => '', fenceHeader: 'a b' })).toThrow(
      'fenceHeader: expected the name of a header',
    )
  })

  test('key tells where the value of a resource is', async () => {
    const resource = freshResource()
    const guard = casGuard(etcdStore(), { key: (name) => `values/${name}` })
    await guard.write(leaseOf(resource, 1n), resource, () => 7)
    expect((await etcdStore().read(`values/${resource}`))?.value).toBe(7)
  })
})
