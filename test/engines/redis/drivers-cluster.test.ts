import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { isNoScript } from '../../../src/engines/redis/drivers/server-errors.ts'
import { slotOf } from '../../../src/engines/redis/slot.ts'
import type { Group } from '../../../harness/group.ts'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { startCluster } from '../../../harness/servers/redis-cluster.ts'
import { until } from '../../../harness/until.ts'
import { addressOf, CLUSTER, type Connected } from './drivers-clients.ts'
import { systemClock } from '../../../src/clock.ts'
import { systemRandom } from '../../../src/random.ts'

let cluster: Group<RedisServer>

beforeAll(async () => {
  cluster = await startCluster()
})

afterAll(() => cluster.stop())

test('the slot of a key is the one that the server computes', async () => {
  for (const key of ['', 'a', 'order:42', '{tag}x', 'x{tag}y{other}', '{}x', '{x', 'ключ', '{{a}}', '🔒']) {
    expect([key, slotOf(key)]).toEqual([key, Number(await cluster.nodes[0]?.cli('CLUSTER', 'KEYSLOT', key))])
  }
})

describe.each(Object.entries(CLUSTER))('%s', (name, connect) => {
  let connected: Connected

  beforeEach(async () => {
    connected = await connect(cluster.nodes.map(addressOf))
  })

  afterEach(() => connected.close())

  test('a command goes to the master of its key, also one that has no key of its own', async () => {
    const { client } = connected
    for (const key of ['a', 'b', 'c', 'd']) {
      const owner = await ownerOf(key)
      await client.run(['EVAL', "return redis.call('SET', KEYS[1], 'v')", '1', key], key)
      expect(await owner.cli('GET', key)).toBe('v')
      expect(await client.run(['CONFIG', 'GET', 'port'], key)).toEqual(['port', String(owner.port)])
    }
    expect(await client.run(['PING'])).toBe('PONG')
  })

  test('many commands at once reach the right nodes', async () => {
    const { client } = connected
    const keys = Array.from({ length: 30 }, (_, index) => `key:${index}`)
    const sent = keys.map((key) => client.run(['EVAL', 'return KEYS[1]', '1', key], key))
    expect(await Promise.all(sent)).toEqual(keys)
    expect(isNoScript(await client.run(['EVALSHA', 'f'.repeat(40), '1', 'a'], 'a').catch((error) => error))).toBe(true)
  })

  test('commands sent together use one connection to the master of the key', async () => {
    const commands = [
      ['CLIENT', 'ID'],
      ['EVAL', "return redis.call('INCR', KEYS[1])", '1', 'together'],
      ['WAIT', '0', '10'],
      ['CLIENT', 'ID'],
    ]
    await connected.client.run(['DEL', 'together'], 'together')
    const [first, count, wait, last] = await connected.client.runTogether(commands, 'together')
    expect([count, wait]).toEqual([1, 0])
    expect(last).toBe(first)
  })

  test('every master can be asked for itself', async () => {
    const masters = await connected.client.masters()
    const expected = cluster.nodes.map(({ host, port }) => `${host}:${port}`)
    expect(masters.map(({ label }) => label).toSorted()).toEqual(expected.toSorted())
    const ports = await Promise.all(masters.map((master) => master.run(['CONFIG', 'GET', 'port'])))
    expect(ports).toEqual(masters.map(({ label }) => ['port', label.split(':')[1]]))
  })

  test('a message on a sharded channel is heard, whichever node its slot is on', async () => {
    const { client } = connected
    const subscriber = client.subscriber(systemClock, systemRandom)
    const heard: string[] = []
    const channels = ['a', 'b', 'c', 'd']
    for (const channel of channels) await subscriber?.subscribe(channel, () => heard.push(channel))
    for (const channel of channels) await client.run(['SPUBLISH', channel, 'x'], channel)
    await until(() => heard.length === channels.length, { what: 'all were heard' })
    expect(heard.toSorted()).toEqual(channels)
    await subscriber?.unsubscribe('a')
    expect(await client.run(['SPUBLISH', 'a', 'x'], 'a')).toBe(0)
    await subscriber?.close()
  })

  test('a subscription that is made while the one before is being ended is heard', async () => {
    const { client } = connected
    const channel = `again: ${name}`
    const owner = await ownerOf(channel)
    const subscriber = client.subscriber(systemClock, systemRandom)
    const heard: string[] = []
    await subscriber?.subscribe(channel, () => undefined)
    // The answer to SUNSUBSCRIBE is on its way for this long; GLIDE gives up after 250 ms.
    await owner.cli('CLIENT', 'PAUSE', '100', 'ALL')
    const ended = subscriber?.unsubscribe(channel)
    await subscriber?.subscribe(channel, (message) => heard.push(message))
    await ended
    expect(await client.run(['SPUBLISH', channel, 'x'], channel)).toBe(1)
    await until(() => heard.length > 0, { what: 'the message was heard' })
    expect(heard).toEqual(['x'])
    await subscriber?.close()
  })

  test('a slot on the move is followed by subscriptions, with a gap told', async () => {
    const { client } = connected
    const channel = `moving channel of ${name}`
    const [from, to] = await ownerAndOther(channel)
    const subscriber = client.subscriber(systemClock, systemRandom)
    const seen = { heard: 0, gaps: 0 }
    subscriber?.onGap(() => seen.gaps++)
    await subscriber?.subscribe(channel, () => seen.heard++)
    await (
      await beginMove(slotOf(channel), from, to)
    )()
    await until(() => seen.gaps > 0, { what: 'the gap was told' })
    await client.run(['SPUBLISH', channel, 'x'], channel)
    await until(() => seen.heard > 0, { what: 'the message was heard from the new node' })
    expect(seen).toEqual({ heard: 1, gaps: 1 })
    await subscriber?.close()
  })

  test('a slot on the move is followed by commands sent together, or they say that it moved', async () => {
    const { client } = connected
    const key = `moving key of ${name}`
    const [from, to] = await ownerAndOther(key)
    const together = (command: string): Promise<readonly unknown[]> =>
      client.runTogether(
        [
          ['EVAL', `return redis.call('${command}', KEYS[1])`, '1', key],
          ['WAIT', '0', '10'],
        ],
        key,
      )
    expect(await together('EXISTS')).toEqual([0, 0])
    const finish = await beginMove(slotOf(key), from, to)
    // GLIDE can't send WAIT after a redirected command to where that one went.
    const refused = name === 'GLIDE' ? `Error: slot ${slotOf(key)} is being moved` : undefined
    const asked = await together('INCR').catch((error: unknown) => String(error).slice(0, refused?.length))
    expect(asked).toEqual(refused ?? [1, 0])
    expect(await client.run(['GET', key], key)).toBe('1')
    await finish()
    await until(() => together('EXISTS'), { what: 'the move was followed' })
    expect(await together('INCR')).toEqual([2, 0])
    expect(await to.cli('GET', key)).toBe('2')
  })

  test('a closed client says so', async () => {
    await connected.client.run(['PING'])
    expect(connected.client.unusable()).toBeUndefined()
    expect(connected.client.label).toBe(
      `cluster(${cluster.nodes.map(({ host, port }) => `${host}:${port}`).join(',')})`,
    )
    await connected.close()
    await until(() => connected.client.unusable()?.includes('is closed'), { what: 'it says so' })
    // And it stays so: a Cluster of ioredis changes its status some more after its end.
    for (let turn = 0; turn < 100; turn++) {
      await nextTurn()
      expect(connected.client.unusable()).toContain('closed')
    }
  })
})

test('a node that crashes and comes back is told as a gap to every kind of client', async () => {
  const channel = 'channel'
  const kinds = await Promise.all(
    Object.values(CLUSTER).map(async (connect) => {
      const { client, close } = await connect(cluster.nodes.map(addressOf))
      const seen = { heard: 0, gaps: 0 }
      const subscriber = client.subscriber(systemClock, systemRandom)
      subscriber?.onGap(() => seen.gaps++)
      await subscriber?.subscribe(channel, () => seen.heard++)
      return { close, subscriber, seen }
    }),
  )
  const owner = await ownerOf(channel)
  await owner.kill()
  await owner.restart()
  await until(() => kinds.every(({ seen }) => seen.gaps > 0), { what: 'all were told of the gap', withinMs: 20_000 })
  await owner.cli('SPUBLISH', channel, 'x')
  await until(() => kinds.every(({ seen }) => seen.heard > 0), { what: 'all heard the node' })
  expect(kinds.map(({ seen }) => seen.heard)).toEqual(kinds.map(() => 1))
  for (const { close, subscriber } of kinds) {
    await subscriber?.close()
    await close()
  }
})

test('a channel that is back is told as a gap at once, although the master of another one is still away', async () => {
  const [first, second] = ['channel of one master', await channelElsewhere('channel of one master')]
  const [firstOwner, secondOwner] = [await ownerOf(first), await ownerOf(second)]
  for (const node of cluster.nodes) await node.cli('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
  // GLIDE alone has one client for all masters, and loses it as a whole.
  const ofEachMaster = Object.entries(CLUSTER).filter(([name]) => name !== 'GLIDE')
  const kinds = await Promise.all(
    ofEachMaster.map(async ([, connect]) => {
      const { client, close } = await connect(cluster.nodes.map(addressOf))
      const gaps: string[] = []
      const subscriber = client.subscriber(systemClock, systemRandom)
      subscriber?.onGap((channel) => gaps.push(channel))
      await subscriber?.subscribe(first, () => undefined)
      await subscriber?.subscribe(second, () => undefined)
      return { close, subscriber, gaps }
    }),
  )
  await secondOwner.kill()
  await firstOwner.cli('CLIENT', 'KILL', 'TYPE', 'pubsub')
  await until(() => kinds.every(({ gaps }) => gaps.includes(first)), { what: 'all were told of the first' })
  expect(kinds.flatMap(({ gaps }) => gaps)).not.toContain(second)
  await secondOwner.restart()
  await until(() => kinds.every(({ gaps }) => gaps.includes(second)), { what: 'all were told of the second' })
  for (const { close, subscriber } of kinds) {
    await subscriber?.close()
    await close()
  }
}, 30_000)

async function channelElsewhere(channel: string): Promise<string> {
  const owner = await ownerOf(channel)
  for (let number = 0; ; number++) {
    if ((await ownerOf(`${channel}, not ${number}`)) !== owner) return `${channel}, not ${number}`
  }
}

async function ownerOf(key: string): Promise<RedisServer> {
  const serves = async (node: RedisServer): Promise<boolean> => /^[01]$/.test(await node.cli('EXISTS', key))
  const find = async (): Promise<RedisServer | undefined> => {
    for (const node of cluster.nodes) if (await serves(node).catch(() => false)) return node
    return undefined
  }
  return until(find, { what: `somebody serves ${key}` })
}

async function ownerAndOther(key: string): Promise<[RedisServer, RedisServer]> {
  const owner = await ownerOf(key)
  return [owner, cluster.nodes.find((node) => node !== owner) ?? owner]
}

/** From here to the call of the result the slot is on its way: keys that are not there are asked for at the other node. */
async function beginMove(slot: number, from: RedisServer, to: RedisServer): Promise<() => Promise<void>> {
  const [fromId, toId] = await Promise.all([from.cli('CLUSTER', 'MYID'), to.cli('CLUSTER', 'MYID')])
  await to.cli('CLUSTER', 'SETSLOT', String(slot), 'IMPORTING', fromId)
  await from.cli('CLUSTER', 'SETSLOT', String(slot), 'MIGRATING', toId)
  return async () => {
    const others = cluster.nodes.filter((node) => node !== to && node !== from)
    for (const node of [to, from, ...others]) await node.cli('CLUSTER', 'SETSLOT', String(slot), 'NODE', toId)
  }
}
