import { MongoClient } from 'mongodb'
import zookeeperDriver from 'node-zookeeper-client'
import { expect, onTestFinished, test } from 'vitest'
import { consul } from '../../src/engines/consul/index.ts'
import { etcd } from '../../src/engines/etcd/index.ts'
import { file } from '../../src/engines/file/index.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { zookeeper } from '../../src/engines/zookeeper/index.ts'
import type { Engine } from '../../src/index.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'

/** Nothing listens there: only root may, and nobody does. */
const NOBODY = '127.0.0.1:1'

async function probe(engine: Engine): Promise<unknown> {
  onTestFinished(() => engine.close())
  return engine.probe!()
}

function silent(node: string, why: string): object {
  return { node, roundTripMs: undefined, clockOffsetMs: undefined, error: expect.stringContaining(why) }
}

test.each([
  ['etcd', () => etcd([`http://${NOBODY}`, 'http://localhost:1']), [`http://${NOBODY}`, 'http://localhost:1']],
  ['consul', () => consul(`http://${NOBODY}`), [`http://${NOBODY}`]],
  ['zookeeper', () => zookeeper(zookeeperDriver, `${NOBODY},localhost:1`), [NOBODY, 'localhost:1']],
] as const)('%s: each server that does not answer is in the probe, with the reason', async (_, engine, nodes) => {
  expect(await probe(engine())).toEqual(nodes.map((node) => silent(node, 'ECONNREFUSED')))
})

test('mongodb: a primary that does not answer is in the probe, with the reason', async () => {
  const client = new MongoClient(`mongodb://${NOBODY}`, { serverSelectionTimeoutMS: 200 })
  onTestFinished(() => client.close())
  expect(await probe(mongodb(client.db('locks')))).toEqual([silent('mongodb', 'ECONNREFUSED')])
})

test('mongodb: a server that was started again has another run', async () => {
  await using server = await startMongodb()
  const client = new MongoClient(server.url)
  onTestFinished(() => client.close())
  const engine = mongodb(client.db('locks'))
  onTestFinished(() => engine.close())
  const run = async (): Promise<string | undefined> => (await engine.probe!())[0]!.run
  const first = await run()
  expect(first).toMatch(/^[0-9a-f]{24}$/)
  expect(await run()).toBe(first)
  await server.restart()
  const second = await until(run, { what: 'an answer after the restart' })
  expect(second).not.toBe(first)
})

test('file: a probe creates nothing, and a file that can not be used is in it, with the reason', async () => {
  const folder = createFolder('probe')
  onTestFinished(() => removeFolder(folder))
  const path = `${folder}/locks.db`
  expect(await probe(file(path))).toEqual([{ node: path, roundTripMs: expect.any(Number), clockOffsetMs: undefined }])
  expect(await probe(file(folder))).toEqual([silent(folder, folder)])
})
