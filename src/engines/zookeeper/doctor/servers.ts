import { connect } from 'node:net'
import type { Clock } from '../../../clock.ts'
import type { Finding, NodeState } from '../../../engine.ts'
import { messageOf } from '../../../errors.ts'
import { findings, sentence } from '../../shared/findings.ts'
import { probed } from '../../shared/probe.ts'

export interface ServerPlan {
  readonly servers: readonly string[]
  readonly withinMs: number
  readonly clock: Clock
}

type ServerState =
  | { readonly kind: 'mode'; readonly mode: string }
  | { readonly kind: 'silent'; readonly why: string }
  | { readonly kind: 'forbidden'; readonly why: string }

interface ServerAnswers {
  readonly server: string
  /** What `srvr` says, or why it says nothing. Servers answer it by default. */
  readonly state: ServerState
  /** `conf` and `mntr` have to be allowed: 4lw.commands.whitelist. */
  readonly conf: ReadonlyMap<string, string>
  readonly mntr: ReadonlyMap<string, string>
}

/** What the servers say about themselves, asked by four-letter commands. */
export async function checkServers(plan: ServerPlan, sessionMs: number | undefined): Promise<readonly Finding[]> {
  const all = await Promise.all(plan.servers.map((server) => ask(server, plan)))
  const each = all.flatMap((answers) => [checkState(answers), ...checkTick(answers, sessionMs), checkDisk(answers)])
  return [...checkQuorum(all), ...each]
}

/** How each server answers now, over a connection of its own. None of them tells its time. */
export function probeServers({ servers, withinMs, clock }: ServerPlan): Promise<readonly NodeState[]> {
  const srvr = async (server: string): Promise<undefined> => {
    const state = readState(await fourLetters(server, 'srvr', withinMs, clock))
    if (state.kind === 'silent') throw new Error(state.why)
    if (state.kind === 'mode' && state.mode === 'read-only') throw new Error('is in read-only mode')
  }
  return Promise.all(servers.map((server) => probed(server, clock, () => srvr(server))))
}

async function ask(server: string, { withinMs, clock }: ServerPlan): Promise<ServerAnswers> {
  const word = (name: string): Promise<string> => fourLetters(server, name, withinMs, clock)
  const [state, conf, mntr] = await Promise.all([
    word('srvr').then(readState, (error: unknown): ServerState => ({ kind: 'silent', why: messageOf(error) })),
    word('conf').catch(() => ''),
    word('mntr').catch(() => ''),
  ])
  return { server, state, conf: table(conf, '='), mntr: table(mntr, '\t') }
}

/** The answer to one of ZooKeeper's four-letter commands, such as `srvr`. Rejects if there is none. */
function fourLetters(server: string, word: string, withinMs: number, clock: Clock): Promise<string> {
  return new Promise((resolve, reject) => {
    const [host, port] = server.split(':')
    let answer = ''
    const socket = connect(Number(port), host, () => socket.write(word))
    const timer = clock.timer(() => socket.destroy(new Error(`no answer within ${withinMs} ms`)), withinMs, true)
    socket.setEncoding('utf8').on('data', (text) => (answer += String(text)))
    socket.once('error', reject)
    socket.once('close', () => {
      timer.cancel()
      resolve(answer)
    })
  })
}

function readState(answer: string): ServerState {
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

function checkQuorum(all: readonly ServerAnswers[]): readonly Finding[] {
  const { ok, warning, critical } = findings('zookeeper')
  const modes = all.flatMap(({ state }) => (state.kind === 'mode' ? [state.mode] : []))
  if (modes.length === 0) return []
  const alone = modes.filter((mode) => mode === 'standalone').length
  if (alone > 0 && modes.length > 1) {
    const found = `Of ${all.length} servers, ${alone} run${alone === 1 ? 's' : ''} standalone: they form no ensemble.`
    const meaning = 'Two clients on two of them can hold the same lease at the same time.'
    const remedy = 'List the servers in each other’s configuration (server.1=…), or name only one of them.'
    return [critical('quorum', found, meaning, remedy)]
  }
  if (alone === 1) {
    const meaning =
      'While it is down, no lease can be granted. Leases are lost if it does not come back before their validity ends.'
    return [
      warning('quorum', 'There is only one server, no quorum.', meaning, 'Run three or five servers as an ensemble.'),
    ]
  }
  if (all.length === 1) {
    const found = `The servers are an ensemble, but only ${all[0]!.server} is named.`
    const meaning = 'If that server fails, this process has no server to go to.'
    return [warning('quorum', found, meaning, 'Name all servers in the connection string.')]
  }
  const found = `The servers are an ensemble: ${modes.join(', ')}.`
  if (modes.includes('leader')) return [ok('quorum', found, 'A minority of the servers may fail.')]
  const meaning =
    'No leader is among the servers named: there is none, or it is a server that this process does not know.'
  return [warning('quorum', found, meaning, 'Name all servers in the connection string, and bring up a majority.')]
}

function checkState({ server, state }: ServerAnswers): Finding {
  const { ok, note, warning, critical } = findings('zookeeper', server)
  if (state.kind === 'forbidden') return note('server', sentence(state.why), 'The state of the server was not checked.')
  if (state.kind === 'silent') {
    const meaning = 'It is down, cut off, or without a majority. Leases go on if a majority of the others serves.'
    const remedy = 'Bring it up, or correct the connection string.'
    return warning('server', sentence(`The server does not serve: ${state.why}`), meaning, remedy)
  }
  if (state.mode !== 'read-only') return ok('server', `Its mode is ${state.mode}.`, 'It serves.')
  const meaning =
    'It has lost the majority of its ensemble and shows old data. Through it, no lease can be granted or renewed.'
  return critical('read-only', 'The server is in read-only mode.', meaning, 'Bring up a majority of the servers.')
}

/** Followers tell the leader every half tick which sessions are alive. The engine relies on sessions of two ticks or more. */
function checkTick({ server, conf }: ServerAnswers, sessionMs: number | undefined): readonly Finding[] {
  const tickMs = Number(conf.get('tickTime') ?? Number.NaN)
  if (sessionMs === undefined || !(tickMs > sessionMs / 2)) return []
  return [
    findings('zookeeper', server).critical(
      'tick',
      `A tick lasts ${tickMs} ms, and a session ${sessionMs} ms.`,
      'The leader may hear of this process too late, and end its session while its leases still count as valid here.',
      'Set minSessionTimeout to two ticks (the default) or more.',
    ),
  ]
}

function checkDisk({ server, mntr }: ServerAnswers): Finding {
  const { ok, note, warning } = findings('zookeeper', server)
  const syncs = mntr.get('zk_cnt_fsynctime')
  const writes = Number(mntr.get('zk_cnt_sync_processor_batch_size') ?? 0)
  if (syncs === undefined || writes === 0) {
    return note(
      'force-sync',
      'Whether it writes to disk before it answers is unknown: mntr is not allowed, or shows no writes.',
      'By default it does. With forceSync=no, machines that fail together forget leases, and tokens may repeat.',
    )
  }
  if (Number(syncs) > 0) return ok('force-sync', 'forceSync is on.', 'What it has confirmed is on its disk.')
  return warning(
    'force-sync',
    'forceSync is off: it answers before the write is on its disk.',
    'If a majority of the machines fails at once, leases are forgotten, and tokens may be given out again.',
    'Start it without -Dzookeeper.forceSync=no.',
  )
}
