import { readFileSync } from 'node:fs'
import path from 'node:path'
import { serversFolder } from '../scripts/servers/cache-folder.mjs'

export interface Program {
  path: string
  env: Record<string, string>
}

interface Server {
  version: string
  bin: Record<string, string>
  env: Record<string, string>
  classPath?: string
  library?: string
}

const serverOf: Record<string, string> = {
  'redis-server': 'redis',
  'redis-cli': 'redis',
  'valkey-server': 'valkey',
  'valkey-cli': 'valkey',
  initdb: 'postgres',
  postgres: 'postgres',
  psql: 'postgres',
  pgbouncer: 'pgbouncer',
  'mariadb-install-db': 'mariadb',
  mariadbd: 'mariadb',
  mariadb: 'mariadb',
  mysqld: 'mariadb',
  mysql: 'mariadb',
  etcd: 'etcd',
  etcdctl: 'etcd',
  java: 'zookeeper',
  consul: 'consul',
  mongod: 'mongodb',
  prometheus: 'prometheus',
  promtool: 'prometheus',
  nginx: 'nginx',
  caddy: 'caddy',
  nft: 'nft',
  spin: 'spin',
  node: 'node',
  'node-20': 'node-20',
  'node-24': 'node-24',
  'node-26': 'node-26',
  bun: 'bun',
  deno: 'deno',
  chromium: 'chromium',
}

let manifest: Record<string, Server> | undefined

/** A program that `npm run servers` has made available. */
export function program(name: string): Program {
  const serverName = serverOf[name]
  if (serverName === undefined) throw new Error(`no server has a program ${name}`)
  // A program that another version lacks is the ordinary one.
  const found = [server(serverName), readManifest()[serverName]].find((each) => each?.bin[name] !== undefined)
  const place = found?.bin[name]
  if (found === undefined || place === undefined) throw missing(chosenVersion(serverName))
  return { path: place, env: found.env }
}

/** A program of this version of a server, whichever was chosen. */
export function programOf(version: string, name: string): Program {
  const { bin, env } = server(version)
  const place = bin[name]
  if (place === undefined) throw new Error(`${version} has no program ${name}`)
  return { path: place, env }
}

/** One server's entry of the manifest. `RINGFENCE_USE_REDIS=redis-8` in the environment takes another version of it. */
export function server(name: string): Server {
  const chosen = chosenVersion(name)
  const found = readManifest()[chosen]
  if (found === undefined) throw missing(chosen)
  return found
}

/** For tests that are skipped, with a word, where a server cannot be had (the clock needs a C compiler). */
export function isAvailable(name: string): boolean {
  return readManifest()[chosenVersion(name)] !== undefined
}

function chosenVersion(name: string): string {
  return process.env[`RINGFENCE_USE_${name.toUpperCase()}`] ?? name
}

function readManifest(): Record<string, Server> {
  if (manifest !== undefined) return manifest
  try {
    manifest = JSON.parse(readFileSync(path.join(serversFolder(), 'manifest.json'), 'utf8')) as Record<string, Server>
  } catch {
    manifest = {}
  }
  return manifest
}

function missing(name: string): Error {
  return new Error(`the server ${name} is missing in ${serversFolder()}: run \`npm run servers -- ${name}\``)
}
