import { resourceKeys, STAMP_KEY } from '../keys.ts'
import { isDenied, isUnknownCommand, type CheckPlan, type Diagnosis, type Patient, type Reply } from './patient.ts'

/** One thing that this user must be allowed to do. */
interface Need {
  readonly command: readonly string[]
  /** The same, such that it changes nothing where it is allowed. Undefined where there is no such thing. */
  readonly attempt: readonly string[] | undefined
  readonly use: 'locks' | 'own keys' | 'wake-ups' | 'inspect' | 'restart'
}

type Verdict = 'allowed' | 'denied' | 'absent' | 'unknown'

interface Answer extends Need {
  readonly verdict: Verdict
}

/** A name that nobody else locks: an attempt may delete its key, which is never there. */
const DOCTORS_RESOURCE = 'ringfence:doctor:never-locked'

/**
 * Since Redis 7 a script can ask what its caller may do: that is exact for keys and channels too, changes nothing, and
 * needs no right to the ACL commands. ARGV: of each command its length, then its words. Answers 1, 0, or -1 if unknown.
 */
const MAY_I = `if not redis.acl_check_cmd then return {} end
local answers, i = {}, 1
while i <= #ARGV do
  local last = i + tonumber(ARGV[i])
  local known, allowed = pcall(redis.acl_check_cmd, unpack(ARGV, i + 1, last))
  answers[#answers + 1] = known and (allowed and 1 or 0) or -1
  i = last + 1
end
return answers`

/** Do scripts run here, and may this user do all that they and the engine do? */
export async function checkPermissions(patient: Patient, plan: CheckPlan): Promise<readonly Diagnosis[]> {
  const needs = needed(patient.client.cluster, plan)
  const words = needs.flatMap(({ command }) => [String(command.length), ...command])
  const [reply, whoami] = await Promise.all([patient.ask('EVAL', MAY_I, '0', ...words), patient.ask('ACL', 'WHOAMI')])
  const told: readonly unknown[] = reply.kind === 'reply' && Array.isArray(reply.value) ? reply.value : []
  const answers =
    told.length === needs.length
      ? needs.map((need, index) => ({ ...need, verdict: verdictOf(told[index]) }))
      : await Promise.all(needs.map(async (need) => ({ ...need, verdict: await tried(patient, need) })))
  const user = whoami.kind === 'reply' ? String(whoami.value) : 'USER'
  return [scripts(reply), forLocks(answers, user, patient.client.cluster, plan), ...forTheRest(answers, user, patient)]
}

function needed(cluster: boolean, plan: CheckPlan): readonly Need[] {
  const { lock, fence, freed } = resourceKeys(plan.prefix ?? '', DOCTORS_RESOURCE)
  const need = (use: Need['use'], command: readonly string[], attempt?: readonly string[]): Need => ({
    use,
    command,
    attempt,
  })
  const reads = (use: Need['use'], ...command: string[]): Need => need(use, command, command)
  // Their arguments are looked at after the permissions: what is allowed fails for its syntax.
  const set = (use: Need['use'], key: string): Need =>
    need(use, ['SET', key, '1', 'PX', '1'], ['SET', key, '1', 'NEITHER'])
  const sitsOut = [
    reads('locks', 'INFO', 'server'),
    reads('locks', 'SCRIPT', 'LOAD', 'return 1'),
    need('locks', ['SCRIPT', 'FLUSH'], ['SCRIPT', 'FLUSH', 'NEITHER']),
    set('locks', STAMP_KEY),
  ]
  return [
    // Nobody has that script.
    reads('locks', 'EVALSHA', '0'.repeat(40), '1', fence),
    reads('locks', 'EVAL', 'return 1', '1', fence),
    reads('locks', 'GET', fence),
    set('locks', fence),
    reads('locks', 'TIME'),
    reads('locks', cluster ? 'SPUBLISH' : 'PUBLISH', freed, '1'),
    ...(plan.restart === 'trust' ? [] : sitsOut),
    ...((plan.replicas ?? 0) > 0 ? [need('locks', ['WAIT', '1', '1'], ['WAIT', '0', '1'])] : []),
    reads('own keys', 'GET', lock),
    set('own keys', lock),
    reads('own keys', 'DEL', lock),
    need('own keys', ['PEXPIRE', lock, '1'], ['PEXPIRE', lock, 'never']),
    reads('own keys', 'PTTL', lock),
    // By which drivers find the master of a key.
    ...(cluster ? [reads('own keys', 'EXISTS', lock)] : []),
    need('wake-ups', [cluster ? 'SSUBSCRIBE' : 'SUBSCRIBE', freed]),
    need('inspect', ['SCAN', '0'], ['SCAN', '0', 'COUNT', '1']),
    ...(plan.restart === 'auto'
      ? [reads('restart', 'EXISTS', STAMP_KEY), reads('restart', 'CONFIG', 'GET', 'append*')]
      : []),
  ]
}

function verdictOf(answer: unknown): Verdict {
  return Number(answer) === 1 ? 'allowed' : Number(answer) === 0 ? 'denied' : 'absent'
}

async function tried(patient: Patient, { attempt, command }: Need): Promise<Verdict> {
  const reply = attempt === undefined ? await subscribed(patient, command[1]!) : await patient.ask(...attempt)
  if (reply === undefined) return 'unknown'
  if (reply.kind === 'reply' || !isDenied(reply.message)) return 'allowed'
  return isUnknownCommand(reply.message) ? 'absent' : 'denied'
}

/** In earnest, on a connection of its own: a connection that subscribes may not be good for anything else. */
async function subscribed(patient: Patient, channel: string): Promise<Reply | undefined> {
  const subscriber = patient.client.subscriber()
  if (subscriber === undefined) return undefined
  try {
    const reply = await patient.bounded(() => subscriber.subscribe(channel, () => undefined))
    return reply.kind === 'reply' || isDenied(reply.message) ? reply : undefined
  } finally {
    // It closes by itself when the connection breaks; nobody waits for it.
    subscriber.close().catch(() => undefined)
  }
}

function scripts(reply: Reply): Diagnosis {
  const id = 'redis/scripts'
  if (reply.kind === 'reply') {
    return {
      id,
      severity: 'ok',
      found: 'runs a script',
      meaning: 'Each step of a lock is one script, so it is atomic.',
    }
  }
  return {
    id,
    severity: 'critical',
    found: `does not run scripts: ${reply.message}`,
    meaning: 'Every step of a lock is a script: none can be acquired here.',
    remedy: isUnknownCommand(reply.message)
      ? 'Take the rename-command of EVAL and EVALSHA out of its configuration, or use a service that has Lua scripts.'
      : 'Allow the user +eval and +evalsha.',
  }
}

function forLocks(answers: readonly Answer[], user: string, cluster: boolean, plan: CheckPlan): Diagnosis {
  const id = 'redis/permissions'
  const relevant = answers.filter(({ use }) => use === 'locks' || use === 'own keys')
  const refused = relevant.filter(isRefused)
  const names = [...new Set(relevant.map(ruleName))]
  if (refused.length === 0) {
    return {
      id,
      severity: 'ok',
      found: `the user ${user} may run ${names.join(', ')} on the keys and channels of locks`,
      meaning: 'The scripts get through.',
    }
  }
  const found = `the user ${user} may not run ${refused.map(shownCommand).join(', ')}`
  const own = relevant.filter(({ use }) => use === 'own keys')
  const prefix = plan.prefix ?? ''
  if (refused.length === own.length && refused.every(({ use }) => use === 'own keys')) {
    return {
      id,
      severity: 'warning',
      found,
      meaning:
        'Lock keys are the plain resource behind the prefix. This user may only use some names, so only resources of such ' +
        'names can be locked; which they are was not checked.',
      remedy: `Lock only what it may use, give the engine a prefix that it may use, or ACL SETUSER ${user} ~${prefix}*`,
    }
  }
  const subscribe = cluster ? 'ssubscribe' : 'subscribe'
  return {
    id,
    severity: 'critical',
    found,
    meaning:
      'A script that meets a command or key it may not use ends there, and what it did before stays: locks do not work.',
    remedy:
      `ACL SETUSER ${user} ${[...names, subscribe, 'scan'].map((name) => `+${name}`).join(' ')} ` +
      `~${prefix}* ~ringfence:* &ringfence:freed:*`,
  }
}

function forTheRest(answers: readonly Answer[], user: string, patient: Patient): readonly Diagnosis[] {
  const refused = (use: Need['use']): readonly Answer[] =>
    answers.filter((answer) => answer.use === use && isRefused(answer))
  return [
    wakeUps(
      answers.find(({ use }) => use === 'wake-ups'),
      user,
      patient,
    ),
    ...(refused('inspect').length > 0 ? [noInspection(user)] : []),
    ...(refused('restart').length > 0 ? [noLook(refused('restart'), user)] : []),
  ]
}

function wakeUps(answer: Answer | undefined, user: string, patient: Patient): Diagnosis {
  const id = 'redis/wake-ups'
  const command = patient.client.cluster ? 'ssubscribe' : 'subscribe'
  const polls = 'Whoever waits for a lock polls with growing pauses instead of being told of its release.'
  if (answer !== undefined && isRefused(answer)) {
    const remedy = `ACL SETUSER ${user} +${command} &ringfence:freed:*`
    return {
      id,
      severity: 'warning',
      found: `the user ${user} may not ${command} to ringfence:freed:*`,
      meaning: polls,
      remedy,
    }
  }
  if (answer?.verdict === 'allowed') {
    return { id, severity: 'ok', found: `may ${command}`, meaning: 'Waiters are told when a lock is released.' }
  }
  return {
    id,
    severity: 'note',
    found: `could not find out whether it may ${command}`,
    meaning: `If it may not: ${polls}`,
  }
}

function noInspection(user: string): Diagnosis {
  return {
    id: 'redis/inspection',
    severity: 'note',
    found: `the user ${user} may not run SCAN`,
    meaning: 'Locks work; listing all of them does not.',
    remedy: `ACL SETUSER ${user} +scan`,
  }
}

function noLook(refused: readonly Answer[], user: string): Diagnosis {
  return {
    id: 'redis/restart-check',
    severity: 'note',
    found: `the user ${user} may not run ${refused.map(shownCommand).join(', ')}`,
    meaning:
      "With restart: 'auto' a node may vote at once if it forgets nothing, or if the whole deployment is new; where that " +
      "can't be asked, it sits out.",
    remedy: `ACL SETUSER ${user} ${refused.map((need) => `+${ruleName(need)}`).join(' ')} ~ringfence:*`,
  }
}

function isRefused({ verdict }: Answer): boolean {
  return verdict === 'denied' || verdict === 'absent'
}

/** As an ACL rule names it: `get`, `script|load`. */
function ruleName({ command: [name = '', first = ''] }: Need): string {
  const container = name === 'SCRIPT' || name === 'CONFIG'
  return (container ? `${name}|${first}` : name).toLowerCase()
}

function shownCommand({ command, verdict }: Answer): string {
  const [name, first] = command
  const target = name === 'EVAL' || name === 'EVALSHA' ? `(key ${command[3]})` : first
  return `${name}${target === undefined ? '' : ` ${target}`}${verdict === 'absent' ? ' (no such command here)' : ''}`
}
