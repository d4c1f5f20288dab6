import type { Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import { fourLetters } from './four-letters.ts'

export interface ServerPlan {
  readonly servers: readonly string[]
  readonly withinMs: number
  readonly clock: Clock
}

type State =
  | { readonly kind: 'mode'; readonly mode: string }
  | { readonly kind: 'silent'; readonly why: string }
  | { readonly kind: 'forbidden'; readonly why: string }

interface Answers {
  readonly server: string
  /** What `srvr` says, or why it says nothing. Servers answer it unless they were told not to. */
  readonly state: State
  /** `conf` and `mntr` have to be allowed: 4lw.commands.whitelist. */
  readonly conf: ReadonlyMap<string, string>
  readonly mntr: ReadonlyMap<string, string>
}

/** What the servers say of themselves, by their four-letter commands. */
export async function checkServers(plan: ServerPlan, sessionMs: number | undefined): Promise<readonly Finding[]> {
  const all = await Promise.all(plan.servers.map((server) => ask(server, plan)))
  return [...quorum(all), ...all.flatMap((answers) => [...state(answers), ...tick(answers, sessionMs), fsync(answers)])]
}

async function ask(server: string, { withinMs, clock }: ServerPlan): Promise<Answers> {
  const word = (name: string): Promise<string> => fourLetters(server, name, withinMs, clock)
  const [srvr, conf, mntr] = await Promise.all([
    word('srvr').then(readState, (error: unknown): State => ({
      kind: 'silent',
      why: error instanceof Error ? error.message : String(error),
    })),
    word('conf').catch(() => ''),
    word('mntr').catch(() => ''),
  ])
  return { server, state: srvr, conf: table(conf, '='), mntr: table(mntr, '\t') }
}

function readState(answer: string): State {
  const mode = /^Mode: (.+)$/m.exec(answer)?.[1]
  if (mode !== undefined) return { kind: 'mode', mode }
  if (answer.includes('whitelist')) return { kind: 'forbidden', why: answer.trim() }
  return { kind: 'silent', why: answer.trim() === '' ? 'an empty answer' : answer.trim() }
}

function table(text: string, separator: string): ReadonlyMap<string, string> {
  const rows = text.split('\n').filter((row) => row.includes(separator))
  return new Map(
    rows.map((row) => [row.slice(0, row.indexOf(separator)), row.slice(row.indexOf(separator) + 1).trim()]),
  )
}

function quorum(all: readonly Answers[]): readonly Finding[] {
  const id = 'zookeeper/quorum'
  const modes = all.flatMap(({ state }) => (state.kind === 'mode' ? [state.mode] : []))
  const alone = modes.filter((mode) => mode === 'standalone').length
  if (alone > 1 || (alone === 1 && modes.length > 1)) {
    return [
      {
        id,
        severity: 'critical',
        found: `of ${all.length} servers, ${alone} are on their own: they don't form an ensemble`,
        meaning: 'Two clients on two of them hold the same lease at the same time.',
        remedy: 'List the servers in each other’s configuration (server.1=…), or name only one of them.',
      },
    ]
  }
  if (alone === 1) {
    return [
      {
        id,
        severity: 'warning',
        found: 'a single server, no quorum',
        meaning: 'While it is down, nobody gets a lease, and leases are lost that it does not come back in time for.',
        remedy: 'Run three or five servers as an ensemble.',
      },
    ]
  }
  if (modes.length === 0) return []
  if (all.length === 1) {
    return [
      {
        id,
        severity: 'warning',
        found: `an ensemble, of which only ${all[0]!.server} is named`,
        meaning: 'If that one fails, this process has no server to go to.',
        remedy: 'Name all servers in the connection string.',
      },
    ]
  }
  const found = `an ensemble: ${modes.join(', ')}`
  if (modes.includes('leader')) return [{ id, severity: 'ok', found, meaning: 'A minority of the servers may fail.' }]
  return [
    {
      id,
      severity: 'warning',
      found: `${found}; no leader among the servers named`,
      meaning: 'There is none, or it is a server that this process does not know.',
      remedy: 'Name all servers in the connection string; bring up a majority.',
    },
  ]
}

function state({ server, state }: Answers): readonly Finding[] {
  const id = 'zookeeper/server'
  if (state.kind === 'forbidden') {
    return [{ id, severity: 'note', node: server, found: state.why, meaning: 'Its state could not be seen.' }]
  }
  if (state.kind === 'silent') {
    return [
      {
        id,
        severity: 'warning',
        node: server,
        found: `does not serve: ${state.why}`,
        meaning: 'It is down, cut off, or without a majority; leases go on if a majority of the others serves.',
        remedy: 'Bring it up, or correct the connection string.',
      },
    ]
  }
  if (state.mode !== 'read-only')
    return [{ id, severity: 'ok', node: server, found: state.mode, meaning: 'It serves.' }]
  return [
    {
      id: 'zookeeper/read-only',
      severity: 'critical',
      node: server,
      found: 'read-only mode',
      meaning:
        'It has lost the majority of its ensemble and shows old data; leases can neither be had nor renewed there.',
      remedy: 'Bring up a majority of the servers.',
    },
  ]
}

/** Followers tell the leader every half tick which sessions are alive; we reckon with two ticks a session or more. */
function tick({ server, conf }: Answers, sessionMs: number | undefined): readonly Finding[] {
  const tickMs = Number(conf.get('tickTime') ?? Number.NaN)
  if (sessionMs === undefined || !(tickMs > sessionMs / 2)) return []
  return [
    {
      id: 'zookeeper/tick',
      severity: 'critical',
      node: server,
      found: `a tick of ${tickMs} ms, a session of ${sessionMs} ms`,
      meaning: 'The leader may hear of us too late: it may end a session while its leases still count as valid here.',
      remedy: 'Set minSessionTimeout to two ticks (the default) or more.',
    },
  ]
}

function fsync({ server, mntr }: Answers): Finding {
  const id = 'zookeeper/force-sync'
  const syncs = mntr.get('zk_cnt_fsynctime')
  const writes = Number(mntr.get('zk_cnt_sync_processor_batch_size') ?? 0)
  if (syncs === undefined || writes === 0) {
    return {
      id,
      severity: 'note',
      node: server,
      found: 'whether it writes to disk before it answers could not be seen (mntr is not allowed, or shows no writes)',
      meaning:
        'By default it does. With forceSync=no, machines that fail together forget leases, and tokens may repeat.',
    }
  }
  if (Number(syncs) > 0) {
    return {
      id,
      severity: 'ok',
      node: server,
      found: 'forceSync is on',
      meaning: 'What it has confirmed is on its disk.',
    }
  }
  return {
    id,
    severity: 'warning',
    node: server,
    found: 'forceSync is off: it answers before its disk has the write',
    meaning: 'If a majority of the machines fails at once, leases are forgotten, and tokens may be given out again.',
    remedy: 'Start it without -Dzookeeper.forceSync=no.',
  }
}
