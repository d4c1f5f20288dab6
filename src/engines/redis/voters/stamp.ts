import { STAMP_KEY } from '../keys.ts'

/**
 * What a node of a quorum knows about its own right to vote: the hash `ringfence:stamp`.
 *
 * | field                                 | what it says                                                                |
 * |---------------------------------------|-----------------------------------------------------------------------------|
 * | `epoch:S`                             | `run epoch`: let in, in that run, by clients that have nodes sit out for S ms |
 * | `since.run`, `since.ms`, `since.level` | first looked at in that run, at that time, without being let in (see `LEVEL`) |
 * | `since.whole`                         | it sat out only because not all nodes could be asked: by itself it had forgotten nothing |
 * | `id`                                  | whose data it is: drawn anew when it is let in, unless it goes on with the data it has |
 * | `seen`, `durable`                     | when clients last used it, and whether its persistence forgot nothing then   |
 * | `looked`                              | when clients that may write were last asked whether it may vote              |
 *
 * Each script below reads the run it is in and looks or writes in one atomic step, so that no restart comes in between.
 */
export const LEVEL = {
  /** Not all nodes answered, and none of the others has a trace: the deployment may still turn out to be new. */
  unsure: 0,
  /** Another node has a trace of use. */
  used: 1,
  /** The process that says so has seen a quorum vote, or is strict. */
  sure: 2,
} as const

export type SitOutLevel = (typeof LEVEL)[keyof typeof LEVEL]

const NOW = `local info = redis.call('info', 'server')
local run = string.match(info, 'run_id:(%w+)') or ''
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + time[2] / 1000)
`

/** Another program may have put something else in the stamp's place. */
const READ = `local stamp = redis.pcall('hgetall', KEYS[1])
local foreign = stamp.err and string.match(stamp.err, 'WRONGTYPE')
if stamp.err and not foreign then return stamp end
`

/** KEYS: the stamp. Reads only. */
const LOOK = `${NOW}${READ}if foreign then stamp = {'foreign', '1'} end
local replication = redis.call('info', 'replication')
return {run, string.match(info, 'uptime_in_seconds:(-?%d+)') or '', now, stamp,
  string.match(replication, 'role:(%w+)') or '', string.match(replication, 'master_replid2:(%w+)') or ''}
`

/**
 * KEYS: the stamp. ARGV: run, level or nothing, whole. With a level: the node sits out from now on, unless it does already in
 * this run. Without: only proves that the stamp can be written. A time in the future, after the clock was set back, is put
 * right.
 */
const MARK = `${NOW}if run ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' then
  ${READ}if foreign then redis.call('del', KEYS[1]) end
  local since = redis.call('hget', KEYS[1], 'since.run') == run and tonumber(redis.call('hget', KEYS[1], 'since.ms'))
  if not since or since > tonumber(now) then
    redis.call('hset', KEYS[1], 'since.run', run, 'since.ms', now, 'since.level', ARGV[2], 'since.whole', ARGV[3])
  elseif redis.call('hget', KEYS[1], 'since.level') < ARGV[2] then
    redis.call('hset', KEYS[1], 'since.level', ARGV[2])
  end
end
redis.call('hset', KEYS[1], 'looked', now)
return 1
`

/**
 * KEYS: the stamp. ARGV: run, epoch field, what it was, what it becomes, durable, the highest level of sitting out that
 * this overrules, and a new id or nothing. Publishes an epoch if the run and the field are still what they were.
 */
const ADMIT = `${NOW}if run ~= ARGV[1] then return {'another run', ''} end
local epoch = redis.call('hget', KEYS[1], ARGV[2]) or ''
if epoch ~= ARGV[3] then return {'another epoch', epoch} end
if redis.call('hget', KEYS[1], 'since.run') == run and redis.call('hget', KEYS[1], 'since.level') > ARGV[6] then
  return {'in use', ''}
end
redis.call('hset', KEYS[1], ARGV[2], ARGV[4], 'seen', now, 'durable', ARGV[5])
if ARGV[7] ~= '' then redis.call('hset', KEYS[1], 'id', ARGV[7]) end
return {'admitted', ARGV[4]}
`

/** KEYS: the stamp. ARGV: run, epoch field, its value, durable. Dates the stamp while it is in use. */
const TOUCH = `${NOW}if run ~= ARGV[1] or redis.call('hget', KEYS[1], ARGV[2]) ~= ARGV[3] then return 0 end
redis.call('hset', KEYS[1], 'seen', now, 'durable', ARGV[4])
return 1
`

/** What was seen of a node in one atomic look. */
export interface NodeLook {
  readonly run: string
  readonly uptimeMs: number
  readonly nowMs: number
  /** As it stands in the stamp, of any run; empty if there is none. */
  readonly epoch: string
  /** Let in, in this very run. */
  readonly isAdmitted: boolean
  /** It remembers that it was let in, in any run. */
  readonly isStamped: boolean
  /** That, or it was seen beside nodes in use, or it is unknown because another program's key is in the stamp's place. */
  readonly isTraced: boolean
  /** Since when it sits out in this run. Undefined if it does not, or if that time is in the future. */
  readonly since: { readonly ms: number; readonly level: number } | undefined
  /** It was let in by these clients in an earlier run, and in no run after that one it sat out for its own sake. */
  readonly isUnbroken: boolean
  /** It is a primary, and was not a replica before in this run. A replica that was promoted may lack what the primary had. */
  readonly isFirstHand: boolean
  /** Names its data; empty if it was never let in. Of two nodes with the same id, one is a copy of the other. */
  readonly id: string
  readonly seenMs: number | undefined
  /** Its persistence forgot nothing when it was last used. */
  readonly wasDurable: boolean
  /** For which other times of sitting out it is let in now: those of clients with another `maxTtl`. */
  readonly otherSitOuts: readonly number[]
}

export const lookCommand = eval0(LOOK)

export function markCommand(run: string, level?: SitOutLevel, isWhole = false): readonly string[] {
  return [...eval0(MARK), run, level === undefined ? '' : String(level), isWhole ? '1' : '']
}

export function admitCommand(
  { run, epoch }: NodeLook,
  sitOutMs: number,
  change: {
    readonly value: string
    readonly isDurable: boolean
    readonly overrules: SitOutLevel
    readonly goesOn: boolean
  },
): readonly string[] {
  const durable = change.isDurable ? '1' : '0'
  const id = change.goesOn ? '' : change.value
  return [...eval0(ADMIT), run, field(sitOutMs), epoch, change.value, durable, String(change.overrules), id]
}

export function touchCommand(value: string, sitOutMs: number, isDurable: boolean): readonly string[] {
  return [...eval0(TOUCH), runOf(value), field(sitOutMs), value, isDurable ? '1' : '0']
}

/** With its text each time: it is sent rarely, and must not depend on a cache. */
function eval0(text: string): readonly string[] {
  return ['EVAL', text, '1', STAMP_KEY]
}

function field(sitOutMs: number): string {
  return `${EPOCH}${sitOutMs}`
}

const EPOCH = 'epoch:'

export function runOf(value: string): string {
  return value.split(' ', 1)[0]!
}

export function readLook(reply: unknown, sitOutMs: number): NodeLook {
  const [run, uptime, now, pairs, role, formerId] = Array.isArray(reply) ? (reply as unknown[]) : []
  if (typeof run !== 'string' || run === '' || !isNumber(uptime) || !isNumber(now) || !Array.isArray(pairs)) {
    throw new Error('INFO server has neither run_id nor uptime_in_seconds, so it is unknown whether the node restarted')
  }
  const stamp = new Map<string, string>()
  for (let at = 0; at < pairs.length; at += 2) stamp.set(String(pairs[at]), String(pairs[at + 1]))
  const nowMs = Number(now)
  const epochs = [...stamp].filter(([name]) => name.startsWith(EPOCH))
  const epoch = stamp.get(field(sitOutMs)) ?? ''
  const isForeign = stamp.has('foreign')
  const sinceRun = stamp.get('since.run')
  const since = { ms: Number(stamp.get('since.ms')), level: Number(stamp.get('since.level')) }
  const isOfThisRun = (value: string): boolean => value !== '' && runOf(value) === run
  return {
    run,
    // Negative after the node's clock was set back.
    uptimeMs: Math.max(0, Number(uptime) * 1000),
    nowMs,
    epoch,
    isAdmitted: isOfThisRun(epoch),
    isStamped: epochs.length > 0,
    isTraced: isForeign || epochs.length > 0 || (sinceRun !== undefined && since.level > LEVEL.unsure),
    since: sinceRun === run && since.ms <= nowMs ? since : undefined,
    isUnbroken:
      epoch !== '' && (sinceRun === undefined || sinceRun === runOf(epoch) || stamp.get('since.whole') === '1'),
    isFirstHand: role === 'master' && /^0+$/.test(String(formerId)),
    id: stamp.get('id') ?? '',
    // If another key is in its place, the last use is unknown: it may be just now.
    seenMs: isForeign ? nowMs : stamp.has('seen') ? Number(stamp.get('seen')) : undefined,
    wasDurable: stamp.get('durable') === '1',
    otherSitOuts: epochs
      .filter(([name, value]) => name !== field(sitOutMs) && isOfThisRun(value))
      .map(([name]) => Number(name.slice(EPOCH.length))),
  }
}

function isNumber(value: unknown): value is string {
  return typeof value === 'string' && /^-?\d+$/.test(value)
}
