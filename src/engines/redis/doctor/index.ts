import type { Finding } from '../../../engine.ts'
import { findings, sentence } from '../../shared/findings.ts'
import type { RedisClient } from '../client.ts'
import { checkClock, checkTrips, compareClocks, measure, type Measured } from './clocks.ts'
import { factsOf } from './facts.ts'
import { checkMembers, type ExaminedServer } from './members.ts'
import { checkMemory } from './memory.ts'
import { checkPermissions } from './permissions.ts'
import { checkPersistence } from './persistence.ts'
import { checkReplication } from './replication.ts'
import {
  ANSWER_MS,
  CheckedServer,
  isDenied,
  messageOf,
  UnansweredError,
  within,
  type RedisCheckPlan,
} from './server.ts'
import { checkState, notServing, servesReads } from './state.ts'

export type { RedisCheckPlan } from './server.ts'

interface ServerReport {
  readonly findings: readonly Finding[]
  /** Undefined when the server could not be asked anything. */
  readonly seen?: ExaminedServer
  readonly measured?: Measured
}

/**
 * The doctor: are these servers fit to hold locks of such a ttl? Asks all servers at the same time, changes nothing on
 * them, and always returns, within about 20 s, with a finding for everything that could not be found out.
 */
export async function checkRedis(plan: RedisCheckPlan): Promise<readonly Finding[]> {
  const reports = (await Promise.all(plan.clients.map((_, member) => checkMember(plan, member)))).flat()
  const seen = reports.flatMap((report) => report.seen ?? [])
  const clocks = reports.flatMap(({ seen, measured }) =>
    seen === undefined || measured?.clock === undefined ? [] : [{ label: seen.server.label, clock: measured.clock }],
  )
  const ofServers = reports.flatMap(({ findings }) => findings)
  const refused = ofServers.filter(({ remedy }) => remedy === LOGIN).length
  return [...checkMembers(plan, seen, refused), ...compareClocks(clocks, plan), ...ofServers]
}

const LOGIN = 'Give its client the right username and password.'

async function checkMember(plan: RedisCheckPlan, member: number): Promise<readonly ServerReport[]> {
  const client = plan.clients[member]!
  const label = ownLabel(plan, member)
  try {
    const unusable = client.unusable()
    if (unusable !== undefined) return [{ findings: [unreachable(plan, client, label, unusable)] }]
    const reply = await within(client, plan.clock, ANSWER_MS, () => client.masters())
    if (reply.kind === 'error') return [{ findings: [unreachable(plan, client, label, reply.message)] }]
    const masters = reply.value as Awaited<ReturnType<typeof client.masters>>
    if (masters.length === 0) return [{ findings: [unreachable(plan, client, label, 'its client knows no master')] }]
    return await Promise.all(
      masters.map((master) =>
        checkServer(plan, new CheckedServer(plan, member, client.cluster ? master.label : label, master)),
      ),
    )
  } catch (error) {
    return [{ findings: [unreachable(plan, client, label, messageOf(error))] }]
  }
}

async function checkServer(plan: RedisCheckPlan, server: CheckedServer): Promise<ServerReport> {
  const { label, report } = server
  const findings: Finding[] = []
  let seen: ExaminedServer | undefined
  let measured: Measured | undefined
  try {
    const pong = await server.ask('PING')
    const refusal = pong.kind === 'error' && !isDenied(pong.message) ? pong.message : undefined
    const hindrance = refusal === undefined ? undefined : notServing(report, refusal)
    if (hindrance !== undefined) return { findings: [hindrance] }
    if (refusal !== undefined && !servesReads(refusal))
      return { findings: [unreachable(plan, server.client, label, refusal)] }
    const facts = await factsOf(server, plan.prefix)
    seen = { server, facts }
    findings.push(report.reachable('Its client is connected and logged in.'))
    findings.push(...(await checkState(server, facts, refusal)))
    // Nothing else of a sentinel is worth a finding.
    if ((facts.info('redis_mode') ?? facts.info('server_mode')) === 'sentinel') return { findings }
    findings.push(...checkMemory(report, facts), ...checkPersistence(report, facts, plan))
    findings.push(...checkReplication(report, facts, plan), ...(await checkPermissions(server, plan)))
    measured = await measure(server, plan)
    findings.push(checkTrips(report, measured, plan), ...checkClock(report, measured, plan))
  } catch (error) {
    const why = messageOf(error)
    if (error instanceof UnansweredError && seen === undefined)
      return { findings: [unreachable(plan, server.client, label, why)] }
    findings.push(
      report.warning(
        'unfinished',
        sentence(`The server answered at first, then the check broke off: ${why}`),
        'The rest was not checked. A server that stops answering for that long costs leases.',
        'Look at SLOWLOG GET and LATENCY DOCTOR, and run this again.',
      ),
    )
  }
  return { findings, ...(seen === undefined ? {} : { seen }), ...(measured === undefined ? {} : { measured }) }
}

function unreachable(plan: RedisCheckPlan, client: RedisClient, node: string, why: string): Finding {
  const { warning, critical } = findings('redis', node)
  const closed = client.unusable()
  const found =
    closed === undefined
      ? sentence(`The server cannot be used: ${why}`)
      : sentence(`The client of the server cannot be used: ${closed}`)
  const remedy = closed === undefined ? remedyOf(client, why) : 'Make the engine with a client that is open.'
  return plan.clients.length === 1
    ? critical('reachable', found, 'No lease can be granted or renewed.', remedy)
    : warning('reachable', found, 'It does not vote, and nothing else of it was checked.', remedy)
}

function remedyOf(client: RedisClient, why: string): string {
  if (/\bNOAUTH\b|\bWRONGPASS\b|invalid (username-password|password)/i.test(why)) {
    return LOGIN
  }
  const seen = 'See whether it runs, and whether address, port, TLS and firewall let its client in.'
  return client.cluster ? `${seen} A Cluster client needs a server with cluster-enabled yes.` : seen
}

/** As the engine names its nodes: two at the same address must be told apart. */
function ownLabel({ clients }: RedisCheckPlan, member: number): string {
  const { label } = clients[member]!
  return clients.filter((other) => other.label === label).length > 1 ? `${label}#${member}` : label
}
