import type { Finding } from '../../engine.ts'
import { checkClock, checkRoundTrip, compareClocks, measure, type Measured } from './doctor/clocks.ts'
import { factsOf } from './doctor/facts.ts'
import { checkMembers, type Seen } from './doctor/members.ts'
import { checkMemory } from './doctor/memory.ts'
import {
  isDenied,
  messageOf,
  Patient,
  PATIENCE_MS,
  SilentError,
  within,
  type CheckPlan,
  type Diagnosis,
} from './doctor/patient.ts'
import { checkPermissions } from './doctor/permissions.ts'
import { checkPersistence } from './doctor/persistence.ts'
import { checkReplication } from './doctor/replication.ts'
import { checkState, notServing, servesReads } from './doctor/state.ts'

export type { CheckPlan } from './doctor/patient.ts'

interface Visit {
  readonly findings: readonly Finding[]
  /** Undefined when the server was not to be spoken to. */
  readonly seen?: Seen
  readonly measured?: Measured
}

/**
 * The doctor: are these servers fit to hold locks of such a ttl? Asks all servers at the same time, changes nothing on
 * them, and always comes back, within about 20 s, with a finding for whatever could not be found out.
 */
export async function checkRedis(plan: CheckPlan): Promise<readonly Finding[]> {
  const visits = (await Promise.all(plan.clients.map((_, member) => visitMember(plan, member)))).flat()
  const seen = visits.flatMap((visit) => visit.seen ?? [])
  const clocks = visits.flatMap(({ seen, measured }) =>
    seen === undefined || measured?.clock === undefined ? [] : [{ label: seen.patient.label, clock: measured.clock }],
  )
  return [...checkMembers(plan, seen), ...compareClocks(clocks, plan), ...visits.flatMap(({ findings }) => findings)]
}

async function visitMember(plan: CheckPlan, member: number): Promise<readonly Visit[]> {
  const client = plan.clients[member]!
  const label = ownLabel(plan, member)
  try {
    const unusable = client.unusable()
    if (unusable !== undefined) return [{ findings: [unreachable(plan, label, unusable)] }]
    const reply = await within(plan.clock, PATIENCE_MS, () => client.masters())
    if (reply.kind === 'error') return [{ findings: [unreachable(plan, label, reply.message)] }]
    const masters = reply.value as Awaited<ReturnType<typeof client.masters>>
    if (masters.length === 0) return [{ findings: [unreachable(plan, label, 'its client knows no master')] }]
    return await Promise.all(
      masters.map((master) =>
        visit(plan, new Patient(client, member, client.cluster ? master.label : label, master, plan.clock)),
      ),
    )
  } catch (error) {
    return [{ findings: [unreachable(plan, label, messageOf(error))] }]
  }
}

async function visit(plan: CheckPlan, patient: Patient): Promise<Visit> {
  const { label } = patient
  const findings: Finding[] = []
  const add = (...found: readonly Diagnosis[]): void =>
    void findings.push(...found.map((one) => ({ ...one, node: label })))
  let seen: Seen | undefined
  let measured: Measured | undefined
  try {
    const pong = await patient.ask('PING')
    const refusal = pong.kind === 'error' && !isDenied(pong.message) ? pong.message : undefined
    const hindrance = refusal === undefined ? undefined : notServing(refusal)
    if (hindrance !== undefined) return { findings: [{ ...hindrance, node: label }] }
    if (refusal !== undefined && !servesReads(refusal)) return { findings: [unreachable(plan, label, refusal)] }
    const facts = await factsOf(patient)
    seen = { patient, facts }
    add({ id: 'redis/reachable', severity: 'ok', found: 'answers', meaning: 'Its client is connected and logged in.' })
    add(...(await checkState(patient, facts, refusal)))
    // Nothing else of a sentinel is worth a word.
    if ((facts.info('redis_mode') ?? facts.info('server_mode')) === 'sentinel') return { findings }
    add(...checkMemory(facts), ...checkPersistence(facts, plan))
    add(...checkReplication(facts, plan), ...(await checkPermissions(patient, plan)))
    measured = await measure(patient, plan)
    add(checkRoundTrip(measured, plan), ...checkClock(measured, plan))
  } catch (error) {
    const why = messageOf(error)
    if (error instanceof SilentError && seen === undefined) return { findings: [unreachable(plan, label, why)] }
    add({
      id: 'redis/unfinished',
      severity: 'warning',
      found: `answered at first, then the check broke off: ${why}`,
      meaning: 'The rest was not checked. A server that stops answering for so long costs leases.',
      remedy: 'Look at SLOWLOG GET and LATENCY DOCTOR, and run this again.',
    })
  }
  return { findings, ...(seen === undefined ? {} : { seen }), ...(measured === undefined ? {} : { measured }) }
}

function unreachable(plan: CheckPlan, node: string, why: string): Finding {
  const login = /\bNOAUTH\b|\bWRONGPASS\b|invalid (username-password|password)/i.test(why)
  const alone = plan.clients.length === 1
  return {
    id: 'redis/reachable',
    severity: alone ? 'critical' : 'warning',
    node,
    found: why,
    meaning: alone ? 'No lease can be granted or renewed.' : 'It does not vote; nothing else of it was checked.',
    remedy: login
      ? 'Give its client the right username and password.'
      : 'See whether it runs, and whether address, port, TLS and firewall let its client in; a Cluster client needs a ' +
        'server with cluster-enabled yes.',
  }
}

/** As the engine names its nodes: two at the same address must be told apart. */
function ownLabel({ clients }: CheckPlan, member: number): string {
  const { label } = clients[member]!
  return clients.filter((other) => other.label === label).length > 1 ? `${label}#${member}` : label
}
