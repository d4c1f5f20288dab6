import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startConsul, type ConsulServer } from '../../../harness/servers/consul.ts'
import { until } from '../../../harness/until.ts'
import { granted, requestFor } from '../requests.ts'
import { open } from './setup.ts'

let server: ConsulServer

beforeAll(async () => {
  server = await startConsul()
})

afterAll(() => server.stop())

async function watched(engine: Engine, resources: string[]) {
  let freed = 0
  const watch = engine.watch!(resources, () => freed++)
  onTestFinished(() => watch.close())
  expect(await watch.armed).toBe(true)
  return { count: () => freed, close: () => watch.close() }
}

test('a watch of several resources hears of each one’s release', async () => {
  const one = open(server.url)
  const [a, b] = [await granted(one, requestFor('a')), await granted(one, requestFor('b'))]
  const watch = await watched(open(server.url), ['a', 'b'])
  expect(watch.count()).toBe(0)
  await one.release(a)
  await until(() => watch.count() === 1, { what: 'the first release' })
  // Taken again, so that only the other one can be heard.
  await granted(one, requestFor('a'))
  const before = watch.count()
  await one.release(b)
  await until(() => watch.count() > before, { what: 'the second release' })
})

test('a lease that was taken and given back between two answers is not missed', async () => {
  await using proxy = await startProxy(server.port)
  const one = open(server.url)
  const watch = await watched(open(`http://127.0.0.1:${proxy.port}`), ['quick'])
  // The answer about its beginning is still on its way when it ends.
  proxy.delay(300, 'replies')
  await one.release(await granted(one, requestFor('quick')))
  proxy.delay(0)
  await until(() => watch.count() > 0, { what: 'the release' })
})

test('a release while the server could not be heard is noticed when it can be heard again', async () => {
  await using proxy = await startProxy(server.port)
  const one = open(server.url)
  const lease = await granted(one, requestFor('unheard'))
  const watch = await watched(open(`http://127.0.0.1:${proxy.port}`), ['unheard'])
  await proxy.refuse(true)
  proxy.reset()
  // It says at once that it may have missed something.
  await until(() => watch.count() === 1, { what: 'the doubt' })
  await one.release(lease)
  await proxy.refuse(false)
  await until(() => watch.count() >= 2, { what: 'the release' })
})

test('a server that comes back without its data, its numbers begun again, is heard', async () => {
  await using forgetful = await startConsul()
  const one = open(forgetful.url)
  for (let i = 0; i < 10; i++) await one.release(await granted(one, requestFor('numbers')))
  const watch = await watched(open(forgetful.url), ['numbers'])
  await forgetful.restart({ empty: true })
  const lease = await until(() => granted(one, requestFor('numbers')), { what: 'a lease', withinMs: 20_000 })
  const before = watch.count()
  await one.release(lease)
  await until(() => watch.count() > before, { what: 'the release' })
})

test('a closed watch hears nothing, and more keys than connections allow are polled instead', async () => {
  const one = open(server.url)
  const lease = await granted(one, requestFor('closed'))
  const watch = await watched(one, ['closed'])
  watch.close()
  await one.release(lease)
  const names = Array.from({ length: 64 }, (_, index) => `k${index}`)
  const many = one.watch!(names, () => undefined)
  expect(await many.armed).toBe(true)
  expect(await one.watch!(['one more'], () => undefined).armed).toBe(false)
  many.close()
  many.close()
  const again = one.watch!(names, () => undefined)
  expect(await again.armed).toBe(true)
  again.close()
  expect(watch.count()).toBe(0)
})

test('a watch on a server that is not there says so', async () => {
  const watch = open('http://127.0.0.1:9').watch!(['a'], () => undefined)
  expect(await watch.armed).toBe(false)
  watch.close()
})
