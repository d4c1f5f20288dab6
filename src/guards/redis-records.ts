import { property } from '../engines/shared/shape.ts'
import { GuardError } from '../errors.ts'
import { MOST_RUNS, type RecordedRun, type Run } from '../runs.ts'
import { effectOf, MAX_RESULT_BYTES, type Effect } from './effect.ts'
import type { Fenced } from './guard.ts'

const NOW = `local time = redis.call('time') local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))`

/**
 * KEYS: the record, then the script's own. ARGV: how long to keep the record in ms or '', an id of this call, then the script's
 * own. `token` and `engine` are those of the check around it. What a script has written stays written, so a result that cannot be
 * kept is recorded as such: the script must not run again. For the same reason a user who may not record it is refused before the script
 * runs; Redis 6.2 cannot tell. On one line, so that line numbers in errors are those of the script.
 */
export function onceScript(script: string): string {
  const before = `
local function found()
  local seen = redis.call('hmget', KEYS[1], 'at', 'token', 'call', 'result', 'failure')
  if seen[1] then return {seen[1], seen[2], seen[3], seen[4] and 1 or 0, seen[4] or seen[5] or ''} end
end
local done = found()
if done then return done end
${NOW}
local may = redis.acl_check_cmd
if may and not (may('hset', KEYS[1], 'at', now) and (ARGV[1] == '' or may('pexpire', KEYS[1], ARGV[1]))) then
  return redis.error_reply('NOPERM the script was not run, because this user may not record it: +hset +pexpire')
end
local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 3, #ARGV do args[i - 2] = ARGV[i] end`
  return `${before.trim().replace(/\s*\n\s*/g, ' ')} local result = (function(KEYS, ARGV) ${script}
end)(keys, args)
if type(result) == 'table' and result.err then return result end
if type(result) == 'table' and result.ok then result = result.ok end
redis.call('hset', KEYS[1], 'at', now, 'token', token, 'engine', engine, 'call', ARGV[2])
if result ~= nil then
  local encoded, text = pcall(cjson.encode, result)
  if encoded and #text > ${MAX_RESULT_BYTES} then
    encoded, text = false, 'expected at most ${MAX_RESULT_BYTES} bytes of JSON, got ' .. #text
  end
  redis.call('hset', KEYS[1], encoded and 'result' or 'failure', text)
end
if ARGV[1] ~= '' then redis.call('pexpire', KEYS[1], ARGV[1]) end
return found()`
}

/** Reads the answer of such a script. */
export function effectIn<T>(answer: unknown, key: string, { resources }: Fenced, call: string): Effect<T> {
  const [at, token, by, hasResult, text] = (answer as unknown[]).map(String)
  if (hasResult === '0' && text !== '') {
    throw new GuardError(
      `the script of '${key}' took effect and will not run again, but its result could not be kept: ${text}`,
      resources,
      { transient: false },
    )
  }
  // A driver that has lost an answer may have sent the script again.
  return effectOf({ result: hasResult === '1' ? text! : null, at: Number(at), token: BigInt(token!) }, by === call)
}

/** Without a right the script does nothing, and the error names it. Redis 6.2 cannot tell. */
const lacking = (what: string, onRuns: string, onOrder: string): string => `
local may, lacks = redis.acl_check_cmd, ''
for place, commands in ipairs(may and {'${onRuns}', '${onOrder}'} or {}) do
  for command in string.gmatch(commands, '%l+') do
    if not may(command, KEYS[place], 0, 0) then lacks = lacks .. ' +' .. command end
  end
end
if lacks ~= '' then return redis.error_reply('NOPERM ${what}, because this user lacks' .. lacks) end`

/**
 * A job has two keys: KEYS[1] has its runs, by owner, and KEYS[2] their order. ARGV: the owner, the run as JSON without its time,
 * how long it took, and 1 if it has ended. A beginning that comes late changes nothing.
 */
export const RECORD_RUN = `${lacking('the run was not recorded', 'time hexists hset hdel', 'zadd zrange zrem')}
${NOW}
if ARGV[4] == '0' and redis.call('hexists', KEYS[1], ARGV[1]) == 1 then return end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('zadd', KEYS[2], 'nx', string.format('%.0f', now - ARGV[3]), ARGV[1])
local old = redis.call('zrange', KEYS[2], 0, -${MOST_RUNS + 1})
for i = 1, #old do redis.call('hdel', KEYS[1], old[i]) redis.call('zrem', KEYS[2], old[i]) end`

/** KEYS as above. ARGV: how many. */
export const READ_RUNS = `${lacking('the runs were not read', 'hget', 'zrevrange')}
local all = {}
local newest = redis.call('zrevrange', KEYS[2], 0, ARGV[1] - 1, 'withscores')
for i = 1, #newest, 2 do all[#all + 1] = {newest[i], newest[i + 1], redis.call('hget', KEYS[1], newest[i]) or '{}'} end
return all`

export function runText({ token, engine, outcome, tookMs, message }: Run): string {
  return JSON.stringify({ token: String(token), engine, outcome, tookMs, message })
}

export function runsIn(job: string, answer: unknown): readonly RecordedRun[] {
  return (answer as readonly unknown[][]).map(([owner, at, text]) => {
    const run: unknown = JSON.parse(String(text))
    const message = property(run, 'message')
    return {
      job,
      owner: String(owner),
      token: BigInt(String(property(run, 'token'))),
      engine: String(property(run, 'engine')),
      outcome: String(property(run, 'outcome')) as RecordedRun['outcome'],
      at: Number(at),
      tookMs: Number(property(run, 'tookMs')),
      ...(typeof message === 'string' ? { message } : {}),
    }
  })
}
