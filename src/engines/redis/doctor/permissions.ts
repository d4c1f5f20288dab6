import type { Finding } from '../../../engine.ts'
import { sentence, type Findings } from '../../shared/findings.ts'
import { resourceKeys, STAMP_KEY } from '../keys.ts'
import { isDenied, isUnknownCommand, type CheckedServer, type RedisCheckPlan, type ServerReply } from './server.ts'

/** One thing that this user must be allowed to do. */
interface Need {
  readonly command: readonly string[]
  /** The same, such that it changes nothing where it is allowed. Undefined where there is no such thing. */
  readonly attempt: readonly string[] | undefined
  readonly use: 'locks' | 'own keys' | 'wake-ups' | 'line' | 'readers' | 'inspect' | 'restart'
}

type Permission = 'allowed' | 'denied' | 'absent' | 'unknown'

interface CheckedNeed extends Need {
  readonly permission: Permission
}

/**
 * A name that nobody else locks: an attempt may delete its key, which is never there. It is no name among the engine's own keys:
 * without a prefix, a user of those alone would seem to be allowed every lock.
 */
const DOCTORS_RESOURCE = 'doctor-of-ringfence:never-locked'

/**
 * Since Redis 7 a script can ask what its caller may do: that is exact for keys and channels too, changes nothing, and
 * needs no right to the ACL commands. ARGV: of each command its length, then its words. Returns 1, 0, or -1 if unknown.
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
export async function checkPermissions(server: CheckedServer, plan: RedisCheckPlan): Promise<readonly Finding[]> {
  const needs = needed(server.client.cluster, plan)
  const words = needs.flatMap(({ command }) => [String(command.length), ...command])
  const [reply, whoami] = await Promise.all([server.ask('EVAL', MAY_I, '0', ...words), server.ask('ACL', 'WHOAMI')])
  const rights: readonly unknown[] = reply.kind === 'reply' && Array.isArray(reply.value) ? reply.value : []
  const answers =
    rights.length === needs.length
      ? needs.map((need, index) => ({ ...need, permission: permissionOf(rights[index]) }))
      : await Promise.all(needs.map(async (need) => ({ ...need, permission: await tried(server, need) })))
  const user = userOf(whoami)
  const { report } = server
  return [scripts(report, reply), await forLocks(server, answers, user, plan), ...forTheRest(report, answers, user)]
}

interface User {
  /** The beginning of a sentence. */
  readonly subject: string
  /** As a command names it. */
  readonly rule: string
}

/** A user may not be allowed to ask for its own name. */
function userOf(whoami: ServerReply): User {
  if (whoami.kind === 'error') return { subject: 'This user', rule: '<user>' }
  const name = String(whoami.value)
  return { subject: `The user ${name}`, rule: name }
}

/**
 * Whether one of the user's key patterns may match a name behind the prefix. Where the patterns cannot be read, only `prefix*`
 * counts, and that was refused.
 */
async function mayUseSome(server: CheckedServer, user: User, prefix: string): Promise<boolean> {
  const reply = await server.ask('ACL', 'GETUSER', user.rule)
  const fields: readonly unknown[] = reply.kind === 'reply' && Array.isArray(reply.value) ? reply.value : []
  const keys = fields[fields.indexOf('keys') + 1]
  const patterns = (Array.isArray(keys) ? keys.join(' ') : typeof keys === 'string' ? keys : '').split(' ')
  return patterns.some((pattern) => {
    const name = pattern.replace(/^(%\w+)?~/, '')
    const literal = name.replace(/[*?[\\].*$/, '')
    return literal.startsWith(prefix) || (literal !== name && prefix.startsWith(literal))
  })
}

function needed(cluster: boolean, plan: RedisCheckPlan): readonly Need[] {
  const { lock, fence, line, readers, freed } = resourceKeys(plan.prefix ?? '', DOCTORS_RESOURCE)
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
    reads('locks', 'HGET', STAMP_KEY, 'seen'),
    reads('locks', 'HGETALL', STAMP_KEY),
    need('locks', ['HSET', STAMP_KEY, 'seen', '1'], ['HSET', STAMP_KEY, 'seen', '1', 'NEITHER']),
  ]
  return [
    // Nobody has that script.
    reads('locks', 'EVALSHA', '0'.repeat(40), '1', fence),
    reads('locks', 'EVAL', 'return 1', '1', fence),
    reads('locks', 'GET', fence),
    set('locks', fence),
    reads('locks', 'TIME'),
    ...(plan.restart === 'trust' ? [] : sitsOut),
    ...((plan.replicas ?? 0) > 0 ? [need('locks', ['WAIT', '1', '1'], ['WAIT', '0', '1'])] : []),
    reads('own keys', 'GET', lock),
    set('own keys', lock),
    reads('own keys', 'DEL', lock),
    need('own keys', ['PEXPIRE', lock, '1'], ['PEXPIRE', lock, 'never']),
    reads('own keys', 'PTTL', lock),
    // By which drivers find the master of a key.
    ...(cluster ? [reads('own keys', 'EXISTS', lock)] : []),
    reads('wake-ups', cluster ? 'SPUBLISH' : 'PUBLISH', freed, '1'),
    need('wake-ups', [cluster ? 'SSUBSCRIBE' : 'SUBSCRIBE', freed]),
    need('line', ['ZADD', line, '1', '1'], ['ZADD', line, 'NEITHER', '1']),
    reads('line', 'ZREM', line, '1'),
    reads('line', 'ZRANGEBYSCORE', line, '0', '0'),
    reads('readers', 'ZSCORE', readers, '1'),
    reads('readers', 'ZRANGE', readers, '0', '0'),
    need('inspect', ['SCAN', '0'], ['SCAN', '0', 'COUNT', '1']),
    ...(plan.restart === 'auto' ? [reads('restart', 'CONFIG', 'GET', 'append*')] : []),
  ]
}

function permissionOf(answer: unknown): Permission {
  return Number(answer) === 1 ? 'allowed' : Number(answer) === 0 ? 'denied' : 'absent'
}

async function tried(server: CheckedServer, { attempt, command }: Need): Promise<Permission> {
  const reply = attempt === undefined ? await subscribed(server, command[1]!) : await server.ask(...attempt)
  if (reply === undefined) return 'unknown'
  if (reply.kind === 'reply' || !isDenied(reply.message)) return 'allowed'
  return isUnknownCommand(reply.message) ? 'absent' : 'denied'
}

/** In earnest, on a connection of its own: a connection that subscribes may not be good for anything else. */
async function subscribed(server: CheckedServer, channel: string): Promise<ServerReply | undefined> {
  const subscriber = server.client.subscriber(server.clock, server.random)
  if (subscriber === undefined) return undefined
  try {
    const reply = await server.bounded(() => subscriber.subscribe(channel, () => undefined))
    return reply.kind === 'reply' || isDenied(reply.message) ? reply : undefined
  } finally {
    // It closes by itself when the connection breaks; nobody waits for it.
    subscriber.close().catch(() => undefined)
  }
}

function scripts({ ok, critical }: Findings, reply: ServerReply): Finding {
  const id = 'scripts'
  if (reply.kind === 'reply') {
    return ok(id, 'The server runs scripts.', 'Each step of a lock is one script, so it is atomic.')
  }
  return critical(
    id,
    sentence(`The server does not run scripts: ${reply.message}`),
    'Every step of a lock is a script: no lock can be acquired here.',
    isUnknownCommand(reply.message)
      ? 'Take the rename-command of EVAL and EVALSHA out of its configuration, or use a service that has Lua scripts.'
      : 'Allow the user +eval and +evalsha.',
  )
}

/** Remedies that are one command are that command alone, to be copied. */
async function forLocks(
  server: CheckedServer,
  answers: readonly CheckedNeed[],
  user: User,
  plan: RedisCheckPlan,
): Promise<Finding> {
  const { ok, warning, critical } = server.report
  const id = 'permissions'
  const relevant = answers.filter(({ use }) => use === 'locks' || use === 'own keys')
  const refused = relevant.filter(isRefused)
  const names = [...new Set(relevant.map(ruleName))]
  if (refused.length === 0) {
    const found = `${user.subject} may run ${names.join(', ')} on the keys and channels of locks.`
    return ok(id, found, 'The scripts get through.')
  }
  const found = `${user.subject} may not run ${refused.map(shownCommand).join(', ')}.`
  const own = relevant.filter(({ use }) => use === 'own keys')
  const prefix = plan.prefix ?? ''
  const lacksKeys = own.every(isRefused)
  const isPrefixMissing =
    prefix === '' && lacksKeys ? 'Is the prefix option missing (?prefix=… in a URL)? If not: ' : ''
  const keys = isPrefixMissing === '' ? `~${prefix}*` : '~<names>*'
  if (lacksKeys && refused.every(({ use }) => use === 'own keys')) {
    if (prefix !== '' && !(await mayUseSome(server, user, prefix))) {
      const meaning = `Lock keys begin with the prefix '${prefix}', and this user may use no such key: nothing can be locked.`
      return critical(id, found, meaning, `ACL SETUSER ${user.rule} ~${prefix}*`)
    }
    return warning(
      id,
      found,
      'Lock keys are the plain resource behind the prefix. This user may only use some names, so only resources with such ' +
        'names can be locked. Which names they are was not checked.',
      prefix === ''
        ? `${isPrefixMissing}lock only what it may use, or ACL SETUSER ${user.rule} ${keys}`
        : `Lock only what it may use, give the engine a prefix that it may use, or ACL SETUSER ${user.rule} ${keys}`,
    )
  }
  const sortedSets = ['zadd', 'zrem', 'zrangebyscore', 'zscore', 'zrange']
  const others = [
    ...sortedSets,
    ...(server.client.cluster ? ['spublish', 'ssubscribe'] : ['publish', 'subscribe']),
    'scan',
  ]
  return critical(
    id,
    found,
    'A script that meets a command or key it may not use ends there, and what it did before stays: locks do not work.',
    `${isPrefixMissing}ACL SETUSER ${user.rule} ${[...names, ...others].map((name) => `+${name}`).join(' ')} ` +
      `${keys} ~ringfence:* &ringfence:freed:*`,
  )
}

function forTheRest(report: Findings, answers: readonly CheckedNeed[], user: User): readonly Finding[] {
  const refused = (use: Need['use']): readonly CheckedNeed[] =>
    answers.filter((answer) => answer.use === use && isRefused(answer))
  return [
    wakeUps(
      report,
      answers.filter(({ use }) => use === 'wake-ups'),
      user,
    ),
    ...(refused('line').length > 0 ? [noLine(report, refused('line'), user)] : []),
    ...(refused('readers').length + refused('line').length > 0
      ? [noReaders(report, [...refused('line'), ...refused('readers')], user)]
      : []),
    ...(refused('inspect').length > 0 ? [noInspection(report, user)] : []),
    ...(refused('restart').length > 0 ? [noLook(report, refused('restart'), user)] : []),
  ]
}

function wakeUps({ ok, note, warning }: Findings, answers: readonly CheckedNeed[], user: User): Finding {
  const id = 'wake-ups'
  const names = answers.map(ruleName)
  const polls = 'A waiter polls with growing pauses instead of being woken by a release.'
  const refused = answers.filter(isRefused).map(ruleName)
  if (refused.length > 0) {
    const wakesNobody = refused.some((name) => name.endsWith('publish'))
    return warning(
      id,
      `${user.subject} may not ${refused.join(' or ')} to ringfence:freed:*.`,
      wakesNobody
        ? 'Locks work, but a release by this user wakes no waiter of another process: the waiter finds out when it looks again.'
        : polls,
      `ACL SETUSER ${user.rule} ${refused.map((name) => `+${name}`).join(' ')} &ringfence:freed:*`,
    )
  }
  if (answers.every(({ permission }) => permission === 'allowed')) {
    return ok(id, `${user.subject} may ${names.join(' and ')}.`, 'Waiters are woken when a lock is released.')
  }
  return note(id, `Could not find out whether this user may ${names.join(' and ')}.`, `If not: ${polls}`)
}

function noLine({ warning }: Findings, refused: readonly CheckedNeed[], user: User): Finding {
  return warning(
    'line',
    `${user.subject} may not run ${refused.map(shownCommand).join(', ')}.`,
    'Locks work, but processes of this user do not stand in line: the first process that asks after a release gets the lock.',
    `ACL SETUSER ${user.rule} ${refused.map((need) => `+${ruleName(need)}`).join(' ')} ~ringfence:*`,
  )
}

function noReaders({ note }: Findings, refused: readonly CheckedNeed[], user: User): Finding {
  return note(
    'shared',
    `${user.subject} may not run ${refused.map(shownCommand).join(', ')}.`,
    'Exclusive leases work; this user gets no shared ones.',
    `ACL SETUSER ${user.rule} ${refused.map((need) => `+${ruleName(need)}`).join(' ')} ~ringfence:*`,
  )
}

function noInspection({ note }: Findings, user: User): Finding {
  const meaning = 'Locks work; listing all of them does not.'
  return note('inspection', `${user.subject} may not run SCAN.`, meaning, `ACL SETUSER ${user.rule} +scan`)
}

function noLook({ note }: Findings, refused: readonly CheckedNeed[], user: User): Finding {
  return note(
    'restart-check',
    `${user.subject} may not run ${refused.map(shownCommand).join(', ')}.`,
    "With restart: 'auto' a node that restarted may vote at once if it forgets nothing; where it cannot be asked, it sits out.",
    `ACL SETUSER ${user.rule} ${refused.map((need) => `+${ruleName(need)}`).join(' ')} ~ringfence:*`,
  )
}

function isRefused({ permission }: CheckedNeed): boolean {
  return permission === 'denied' || permission === 'absent'
}

/** As an ACL rule names it: `get`, `script|load`. */
function ruleName({ command: [name = '', first = ''] }: Need): string {
  const container = name === 'SCRIPT' || name === 'CONFIG'
  return (container ? `${name}|${first}` : name).toLowerCase()
}

function shownCommand({ command, permission }: CheckedNeed): string {
  const [name, first] = command
  const target = name === 'EVAL' || name === 'EVALSHA' ? `(key ${command[3]})` : first
  return `${name}${target === undefined ? '' : ` ${target}`}${permission === 'absent' ? ' (no such command here)' : ''}`
}
