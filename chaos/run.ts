import { Seeded } from '../sim/random.ts'
import { until } from '../harness/until.ts'
import type { Arena } from './arena.ts'
import {
  advisoryArena,
  fileArena,
  mariadbArena,
  mysqlArena,
  postgresArena,
  redisArena,
  valkeyArena,
} from './arenas/alone.ts'
import { consulArena, etcdArena, mongodbArena, zookeeperArena } from './arenas/clusters.ts'
import { clusterArena, sentinelArena } from './arenas/redis-groups.ts'
import { forgetfulArena, redlockArena } from './arenas/redlock.ts'
import { Crowd } from './crowd.ts'
import { openLedger, type Audit } from './ledger.ts'
import { Nemesis } from './nemesis.ts'
import { nowMs } from './now.ts'
import { failures, type Gap, type Report } from './report.ts'
import { longestGap, overlap, settled, type Span } from './spans.ts'

export const ARENAS: Readonly<Record<string, () => Promise<Arena>>> = {
  redlock: redlockArena,
  'redlock-forgetful': forgetfulArena,
  etcd: etcdArena,
  zookeeper: zookeeperArena,
  consul: consulArena,
  mongodb: mongodbArena,
  postgres: postgresArena,
  'postgres-advisory': advisoryArena,
  mariadb: mariadbArena,
  mysql: mysqlArena,
  redis: redisArena,
  valkey: valkeyArena,
  sentinel: sentinelArena,
  cluster: clusterArena,
  file: fileArena,
}

export interface RunOptions {
  readonly engine: string
  readonly seconds: number
  readonly seed: string
  readonly tell: (line: string) => void
  readonly signal?: AbortSignal
  /** Default ten. */
  readonly clients?: number
  /** A bug that is put in, to see that it is seen. */
  readonly guard?: 'lets all pass'
}

const ACCOUNTS = ['account-1', 'account-2', 'account-3', 'account-4']
/** A client that was told to end has this long: its section, and what it gives up on unreachable servers. */
const END_MS = 30_000

/** The servers of one engine, some clients and a nemesis, for this many seconds; then what the ledger says about it. */
export async function run({ engine, seconds, seed, tell, signal, clients = 10, guard }: RunOptions): Promise<Report> {
  const interrupted = signal ?? new AbortController().signal
  await using ledger = await openLedger(ACCOUNTS)
  await using arena = await ARENAS[engine]!()
  await using crowd = new Crowd(arena, { accounts: ACCOUNTS, ledgerUrl: ledger.url, guard })
  await crowd.start(clients)
  // What finds nothing at the end must be able to find something.
  const some = async (): Promise<boolean> => (await arena.leftovers()).length > 0
  await until(some, { what: 'leases are seen on the servers', withinMs: 30_000 })
  const startMs = nowMs()
  const say = (line: string): void => tell(`${((nowMs() - startMs) / 1000).toFixed(1).padStart(6)} s  ${line}`)

  const nemesis = new Nemesis(arena, crowd, new Seeded(seed), say)
  say('a client is stopped between its look and its write')
  await crowd.sleepwalk(ACCOUNTS[0]!, (token) => ledger.hasNewer(ACCOUNTS[0]!, token))
  await nemesis.rage(seconds * 1000, interrupted)
  interrupted.throwIfAborted()
  say('all is mended')
  const endMs = nowMs()
  const hanging = await crowd.end(END_MS)
  say('the clients have ended')
  const left = await leftovers(arena)
  const audit = await ledger.audit()

  const report: Omit<Report, 'failures'> = {
    engine,
    seed,
    seconds,
    sections: audit.entries.guarded,
    grants: audit.grants.length,
    ways: crowd.ways,
    faults: Object.fromEntries(nemesis.faults),
    hindrances: crowd.counts,
    lost: audit.lost,
    shared: audit.shared.length,
    leftovers: left,
    longestGap: gap(audit, arena, nemesis, { fromMs: startMs, toMs: endMs }),
  }
  const { mostGapMs } = arena
  const evidence = { audit, mostGapMs, unexplained: unexplained(audit, arena, nemesis), hanging, deaths: crowd.deaths }
  return { ...report, failures: failures(report, evidence) }
}

/** Of any account, while a majority of the servers had been well for a while; told from the start of the run. */
function gap({ grants }: Audit, arena: Arena, { outages }: Nemesis, whole: Span): Gap {
  const spans = settled(whole, [...outages.values()], arena)
  const gaps = ACCOUNTS.map((account) => {
    const times = grants.filter((grant) => grant.account === account).map(({ grantedMs }) => grantedMs)
    const { fromMs, toMs } = longestGap(spans, times)
    return { account, fromMs: Math.round(fromMs - whole.fromMs), forMs: Math.round(toMs - fromMs) }
  })
  return gaps.reduce((longest, other) => (other.forMs > longest.forMs ? other : longest))
}

/** Two holders at a time when no clock had jumped. */
function unexplained({ shared }: Audit, arena: Arena, { clockTrouble }: Nemesis): Span[] {
  if (arena.exclusion === 'not promised') return []
  const trouble = clockTrouble.map(({ fromMs, toMs }) => ({ fromMs, toMs: toMs + arena.clearMs }))
  return shared.filter((span) => !trouble.some((other) => overlap(span, other)))
}

/** What is still there when all leases must be over. */
async function leftovers(arena: Arena): Promise<string[]> {
  const none = async (): Promise<boolean> => (await arena.leftovers()).length === 0
  await until(none, { what: 'nothing is left', withinMs: arena.clearMs, everyMs: 100 }).catch(() => undefined)
  return arena.leftovers()
}
