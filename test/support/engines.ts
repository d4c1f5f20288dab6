import { readFileSync } from 'node:fs'
import path from 'node:path'
import { engineFolder } from '../../scripts/engines/cache-folder.mjs'

export interface Program {
  path: string
  env: Record<string, string>
}

interface Engine {
  version: string
  bin: Record<string, string>
  env: Record<string, string>
  classPath?: string
  library?: string
}

const engineOf: Record<string, string> = {
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
  etcd: 'etcd',
  etcdctl: 'etcd',
  java: 'zookeeper',
  consul: 'consul',
  mongod: 'mongodb',
  prometheus: 'prometheus',
  promtool: 'prometheus',
  node: 'node',
  chromium: 'chromium',
}

let manifest: Record<string, Engine> | undefined

/** A program that `npm run engines` has made available. */
export function program(name: string): Program {
  const engineName = engineOf[name]
  if (engineName === undefined) throw new Error(`no engine has a program ${name}`)
  const found = engine(engineName)
  const place = found.bin[name]
  if (place === undefined) throw missing(engineName)
  return { path: place, env: found.env }
}

/** One engine's entry of the manifest. */
export function engine(name: string): Engine {
  const found = readManifest()[name]
  if (found === undefined) throw missing(name)
  return found
}

/** For tests that are skipped, with a word, where an engine cannot be had (the clock needs a C compiler). */
export function hasEngine(name: string): boolean {
  return readManifest()[name] !== undefined
}

function readManifest(): Record<string, Engine> {
  if (manifest !== undefined) return manifest
  try {
    manifest = JSON.parse(readFileSync(path.join(engineFolder(), 'manifest.json'), 'utf8')) as Record<string, Engine>
  } catch {
    manifest = {}
  }
  return manifest
}

function missing(name: string): Error {
  return new Error(`the engine ${name} is missing in ${engineFolder()}: run \`npm run engines -- ${name}\``)
}
