import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { serversFolder } from '../scripts/servers/cache-folder.mjs'

/**
 * @typedef {object} Server
 * @property {number} port
 * @property {number} pid
 * @property {Redis} control a connection of ours that no library uses
 * @property {() => void} freeze
 * @property {() => void} thaw
 */

/** @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set()
/** @type {Set<Redis>} */
const controls = new Set()
/** @type {Set<string>} */
const folders = new Set()

process.on('exit', killAll)

/** Redis servers of our own, in memory only. @param {number} count @returns {Promise<Server[]>} */
export async function startServers(count) {
  return Promise.all(Array.from({ length: count }, startServer))
}

/** Also when something went wrong, and as often as one likes. */
export async function stopServers() {
  for (const control of controls) control.disconnect()
  controls.clear()
  const children = [...running]
  killAll()
  const alive = children.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null)
  await Promise.all(alive.map((child) => new Promise((done) => child.once('exit', done))))
}

/** Nothing in them is worth a farewell, and a frozen server would not hear a softer signal. */
function killAll() {
  for (const child of running) child.kill('SIGKILL')
  running.clear()
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
  folders.clear()
}

async function startServer() {
  const { path: program, env } = redisProgram()
  const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-bench-'))
  folders.add(folder)
  for (let attempt = 1; ; attempt++) {
    const port = await freePort()
    const args = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'no']
    const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: 'ignore' })
    running.add(child)
    child.once('exit', () => running.delete(child))
    const control = await connected(port, child)
    if (control !== undefined) {
      controls.add(control)
      const pid = /** @type {number} */ (child.pid)
      return {
        port,
        pid,
        control,
        freeze: () => process.kill(pid, 'SIGSTOP'),
        thaw: () => process.kill(pid, 'SIGCONT'),
      }
    }
    child.kill('SIGKILL')
    if (attempt === 5) throw new Error(`${program} does not start`)
  }
}

/** Undefined when the server ended at once: another process was faster to take its port. */
async function connected(port, child) {
  const control = new Redis(port, '127.0.0.1', { lazyConnect: true, retryStrategy: null, reconnectOnError: null })
  control.on('error', () => undefined)
  for (let tries = 0; tries < 200 && child.exitCode === null; tries++) {
    try {
      await control.connect()
      await control.ping()
      return control
    } catch {
      await sleep(20)
    }
  }
  control.disconnect()
  return undefined
}

function redisProgram() {
  const file = path.join(serversFolder(), 'manifest.json')
  try {
    const { redis } = JSON.parse(readFileSync(file, 'utf8'))
    return { path: redis.bin['redis-server'], env: redis.env }
  } catch (cause) {
    throw new Error(`there is no redis-server in ${file}: run \`npm run servers -- redis\``, { cause })
  }
}

/** Below the range for outgoing connections, so that no connection of the benchmark itself takes it. */
async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000)
    const free = await new Promise((done) => {
      const probe = createServer()
      probe.once('error', () => done(false))
      probe.listen(port, '127.0.0.1', () => probe.close(() => done(true)))
    })
    if (free) return port
  }
}

/** What the servers have been asked since `resetCounts`, by command, with what scripts ran. @param {Server[]} servers */
export async function counts(servers) {
  /** @type {Map<string, number>} */
  const calls = new Map()
  for (const { control } of servers) {
    const info = await control.info('commandstats')
    for (const [, name = '', number] of info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
      calls.set(name, (calls.get(name) ?? 0) + Number(number))
    }
  }
  return calls
}

/** @param {Server[]} servers */
export async function resetCounts(servers) {
  await Promise.all(servers.map(({ control }) => control.config('RESETSTAT')))
}

/** CPU seconds that the servers have used. @param {Server[]} servers */
export async function serverCpu(servers) {
  let seconds = 0
  for (const { control } of servers) {
    const info = await control.info('cpu')
    for (const [, value] of info.matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)) seconds += Number(value)
  }
  return seconds
}

/** @param {Server[]} servers */
export async function emptyServers(servers) {
  await Promise.all(servers.map(({ control }) => control.flushall()))
}
