import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { server } from '../harness/binaries.ts'
import { commit } from '../sim/commit.ts'
import type { Report } from './report.ts'

const RESULTS = new URL('results.json', import.meta.url)
const PAGE = new URL('../docs/testing/runs.md', import.meta.url)

/** The servers of each arena, by their names in `npm run servers`, and the drivers of its clients. */
const USED: Readonly<Record<string, readonly [servers: readonly string[], drivers: readonly string[]]>> = {
  redlock: [['redis'], ['ioredis', 'redis']],
  'redlock-forgetful': [['redis'], ['ioredis', 'redis']],
  etcd: [['etcd'], []],
  zookeeper: [['zookeeper'], ['node-zookeeper-client']],
  consul: [['consul'], []],
  mongodb: [['mongodb'], ['mongodb']],
  postgres: [['postgres'], ['pg', 'postgres']],
  'postgres-advisory': [['postgres'], ['pg']],
  mariadb: [['mariadb'], ['mariadb', 'mysql2']],
  mysql: [['mysql-9'], ['mariadb', 'mysql2']],
  redis: [['redis'], ['ioredis', 'iovalkey', 'redis', '@valkey/valkey-glide']],
  valkey: [['valkey'], ['ioredis', 'iovalkey', 'redis', '@valkey/valkey-glide']],
  sentinel: [['redis'], ['ioredis', 'iovalkey', 'redis']],
  cluster: [['redis'], ['ioredis', 'iovalkey', 'redis', '@valkey/valkey-glide']],
  file: [[], []],
}

interface Run extends Omit<Report, 'leftovers' | 'hindrances'> {
  readonly leftovers: number
  readonly date: string
  readonly commit: string
  readonly versions: Readonly<Record<string, string>>
}

function versionsOf(engine: string): Record<string, string> {
  const [servers, drivers] = USED[engine]!
  return {
    node: process.versions.node,
    ...Object.fromEntries(servers.map((name) => [name, server(name).version])),
    ...Object.fromEntries(drivers.map((name) => [`npm:${name}`, installed(name)])),
  }
}

function installed(name: string): string {
  const manifest = readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url), 'utf8')
  return (JSON.parse(manifest) as { version: string }).version
}

function kept(): Run[] {
  return existsSync(RESULTS) ? (JSON.parse(readFileSync(RESULTS, 'utf8')) as Run[]) : []
}

/** A run of the same engine, seed and length replaces the one that was kept. Writes the table of the page, too. */
export function keep(report: Report): void {
  const { leftovers, hindrances: _, ...rest } = report
  const { engine, seed, seconds } = report
  const isOther = (run: Run): boolean => run.engine !== engine || run.seed !== seed || run.seconds !== seconds
  const facts = { date: new Date().toISOString().slice(0, 10), commit: commit(), versions: versionsOf(engine) }
  const runs = [...kept().filter(isOther), { ...rest, ...facts, leftovers: leftovers.length }]
  const order = Object.keys(USED)
  runs.sort((a, b) => order.indexOf(a.engine) - order.indexOf(b.engine))
  writeFileSync(RESULTS, `${JSON.stringify(runs, null, 2)}\n`)
  writeFileSync(PAGE, pageWithTable())
}

/** The page as it has to be. */
export function pageWithTable(): string {
  const [begin, end] = ['<!-- chaos -->', '<!-- end of chaos -->']
  const text = readFileSync(PAGE, 'utf8')
  const [from, to] = [text.indexOf(begin), text.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`expected ${begin} and then ${end}, found no such pair`)
  return `${text.slice(0, from)}${begin}\n\n${tableOf(kept())}\n\n${text.slice(to)}`
}

function tableOf(runs: readonly Run[]): string {
  const head =
    'engine|runs × seconds|sections|faults|lost with the guard|lost without|two holders|left behind|longest gap|failed|versions|date, commit'
  const rows = [...new Set(runs.map(rowOf))].map((row) => {
    const alike = runs.filter((run) => rowOf(run) === row)
    const sum = (of: (run: Run) => number): number => alike.reduce((total, run) => total + of(run), 0)
    const faults = Object.keys(Object.assign({}, ...alike.map((run) => run.faults)) as Run['faults'])
    const { engine, seconds, versions, date, commit: at } = alike[0]!
    return [
      engine,
      `${alike.length} × ${seconds}`,
      sum(({ sections }) => sections),
      faults.map((kind) => `${sum((run) => run.faults[kind] ?? 0)} ${kind}`).join(', '),
      `**${sum(({ lost }) => lost.guarded)}**`,
      sum(({ lost }) => lost.unguarded),
      sum(({ shared }) => shared),
      sum(({ leftovers }) => leftovers),
      `${(Math.max(...alike.map(({ longestGap }) => longestGap.forMs)) / 1000).toFixed(1)} s`,
      alike.filter(({ failures }) => failures.length > 0).length,
      Object.entries(versions)
        .map(([name, version]) => `${name.replace('npm:redis', 'node-redis').replace('npm:', '')} ${version}`)
        .join(', '),
      `${date}, ${at}`,
    ].join(' | ')
  })
  const columns = head.split('|')
  return [columns.join(' | '), columns.map(() => '---').join(' | '), ...rows].map((row) => `| ${row} |`).join('\n')
}

function rowOf({ engine, seconds, date, commit: at }: Run): string {
  return [engine, seconds, date, at].join(' ')
}
