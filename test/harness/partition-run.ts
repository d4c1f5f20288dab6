import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { connect } from 'node:net'
import { Redis } from 'ioredis'
import { cut, lose, openNetwork, slow, type Path } from '../../harness/faults/network.ts'
import { startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'

/** What is on its way has arrived long before; what is cut does not arrive however long one waits. */
const LONG_MS = 1000

/** Of the one clock; what is sent again after a cut comes a hundred times later. */
const CLOCK_GRAIN_MS = 1

interface Seen {
  /** A command had an answer. */
  readonly answered: boolean
  /** The other server answered one. */
  readonly other: boolean
  /** The server has executed it, told from how many it has by the time all is mended. */
  readonly executed: boolean
}

const lacking = openNetwork()
await using group = await startRedisNodes(2)
const [one, two] = group.nodes as [RedisServer, RedisServer]
const clients = [one, two].map(({ port }) => new Redis({ host: '127.0.0.1', port }))
const [first, second] = clients as [Redis, Redis]
await Promise.all([first.ping(), second.ping()])

const fromAll: Record<string, readonly Path[]> = {
  'to it': [{ to: one }],
  'from it': [{ from: one }],
  both: [{ to: one }, { from: one }],
}
const seen: Record<string, Seen> = { before: await look() }
for (const [way, paths] of Object.entries(fromAll)) {
  const heal = cut(paths)
  const opened = connect(one.port, '127.0.0.1')
  seen[way] = await look(heal)
  await until(() => !opened.connecting, { what: `a connection that was opened meanwhile is there: ${way}` })
  opened.destroy()
  seen[`after ${way}`] = await look()
}

await second.replicaof('127.0.0.1', one.port)
await follows()
const [there, back] = [
  { from: one, to: two },
  { from: two, to: one },
]
const members = {
  'from the first': await during(cut([there]), async () => {
    await first.set('a', 'value')
    return { ...(await answers()), arrived: await isSoon(async () => (await second.get('a')) !== null) }
  }),
  'to the first': await during(cut([back]), async () => {
    await first.set('b', 'value')
    await until(async () => (await second.get('b')) !== null, { what: 'what the first sends arrives' })
    return { ...(await answers()), confirmed: (await first.wait(1, LONG_MS)) === 1 }
  }),
  both: await during(cut([there, back]), async () => {
    await first.set('c', 'value')
    return { ...(await answers()), arrived: await isSoon(async () => (await second.get('c')) !== null) }
  }),
}
const sentAgain = (): number => Number(countersOf('Tcp')['RetransSegs'])
const before = sentAgain()
await during(lose([{ from: one }, { to: one }], 30), async () => {
  await until(async () => (await first.ping()) && sentAgain() > before, { what: 'something is sent again', everyMs: 0 })
})

const [bytes, bytesPerSecond] = [10_000, 20_000]
const sentMs = performance.now()
await during(slow([{ to: one }], { bytesPerSecond, mostMs: 5000 }), () => first.set('large', 'x'.repeat(bytes)))
const tookMs = performance.now() - sentMs
const waited = Number(
  /Sent (\d+) bytes/.exec(execFileSync('tc', ['-s', 'class', 'show', 'dev', 'lo'], { encoding: 'utf8' }))![1],
)
// A first packet need not wait.
const isSlow = waited > bytes && tookMs > ((bytes - 3000) / bytesPerSecond) * 1000

process.stdout.write(JSON.stringify({ lacking, seen, members, isSlow }))
for (const client of clients) client.disconnect()

/** `heal`: called between the question and the look at what the server has done. */
async function look(heal?: () => void): Promise<Seen> {
  // Its time is taken by the server when it executes it.
  let at: number | undefined
  const asked = first.time().then(([s, us]) => void (at = Number(s) * 1000 + Number(us) / 1000))
  const other = second.ping().then(() => true)
  const answered = await (heal === undefined ? asked.then(() => true) : isSoon(() => asked.then(() => true)))
  const healedMs = Date.now()
  heal?.()
  await until(() => at !== undefined, { what: 'the connection goes on' })
  return { answered, other: await other, executed: at! < healedMs + CLOCK_GRAIN_MS }
}

/** Both still hear their clients. */
async function answers(): Promise<{ first: string; second: string }> {
  return { first: await first.ping(), second: await second.ping() }
}

/** Asked for a while: what is cut is never so. */
async function isSoon(ask: () => Promise<boolean>): Promise<boolean> {
  const endMs = performance.now() + LONG_MS
  const late = pause(LONG_MS, false)
  while (performance.now() < endMs) {
    if (await Promise.race([ask(), late])) return true
    await pause(10)
  }
  return false
}

/** The replica has what the first had until now, and the first knows it. */
async function follows(): Promise<void> {
  await first.set('now', String(performance.now()))
  await until(async () => (await first.wait(1, LONG_MS)) === 1, { what: 'the replica follows', withinMs: 60_000 })
}

async function during<T>(heal: () => void, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } finally {
    heal()
    await follows()
  }
}

/** A line with names and one with figures. */
function countersOf(protocol: string): Record<string, string> {
  const [names, figures] = readFileSync('/proc/net/snmp', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith(`${protocol}:`))
    .map((line) => line.split(' '))
  return Object.fromEntries(names!.map((name, index) => [name, figures![index]!]))
}
