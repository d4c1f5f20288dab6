// Runs the cases of ringfence/conformance on the built package, with whichever runtime it is started by. It needs no test
// framework, because none runs on all of them. Prints one line of JSON.
//
//   node test/runtimes/runner.mjs PORT FOLDER     PORT of a Redis server, FOLDER for the file engine
import path from 'node:path'
import process from 'node:process'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { conformance } from 'ringfence/conformance'
import { file } from 'ringfence/file'
import { memory } from 'ringfence/memory'
import { redis } from 'ringfence/redis'

const [port, folder] = process.argv.slice(2)
const clients = [new Redis(Number(port)), new Redis(Number(port))]
let asked = 0
const one = memory()
const openFile = () => file(path.join(folder, 'locks.db'))

const setups = {
  memory: { engine: viewOfOne, methods: ['handOver', 'watch', 'probe'] },
  redis: {
    // Two clients in turn, as two processes would have them. The timeout that follows from short ttls is too little for a busy machine.
    engine: () => redis(clients[asked++ % 2], { requestTimeout: '3s' }),
    methods: ['handOver', 'adopt', 'leave', 'enqueue', 'watch', 'unanswered', 'probe', 'init'],
    shortTtlMs: 300,
  },
  file: { engine: openFile, methods: ['adopt', 'enqueue', 'leave', 'probe', 'init'] },
}

/** The engine of another process over the same leases. */
function viewOfOne() {
  return new Proxy(one, {
    get(target, name) {
      const value = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** One case after another; the engines run side by side. */
async function runCases(setup) {
  const failed = {}
  const passed = []
  for (const { name, run } of conformance({ ...setup, shared: true })) {
    try {
      await run()
      passed.push(name)
    } catch (error) {
      failed[name] = String(error?.stack ?? error)
    }
  }
  return { methods: setup.methods, passed, failed }
}

/** Which SQLite the file engine has found. */
async function sqlite() {
  const locks = createLocks(openFile())
  const findings = await locks.check()
  await locks.close()
  return findings.find(({ id }) => id === 'file/open')?.found ?? 'no finding file/open'
}

const results = await Promise.all(Object.values(setups).map(runCases))
const engines = Object.fromEntries(Object.keys(setups).map((name, index) => [name, results[index]]))
const { bun, deno, node } = process.versions
const result = { version: bun ?? deno ?? node, engines, sqlite: await sqlite() }
for (const client of clients) client.disconnect()
process.stdout.write(`${JSON.stringify(result)}\n`)
