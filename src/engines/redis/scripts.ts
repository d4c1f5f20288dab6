import { ENQUEUE, OFFERED, PASS, WAITING } from './line-lua.ts'
import { TOO_OLD } from './drivers/server-errors.ts'
import { piece, type Piece } from './pieces.ts'
import { sha1 } from './sha1.ts'
import {
  CONFIRM_READER,
  EXTEND_READERS,
  JOINS,
  READERS,
  READING,
  RELEASE_READER,
  REPEATED,
  SHARE,
  SHARED,
} from './readers-lua.ts'

/**
 * The protocol's steps, each atomic on its node, for one or more resources: all or none. A resource comes as two keys,
 * L (the lock: value = owner, with a time to live) and F (the fence: a number that only grows, and outlives L). Steps that
 * know the line of a resource (see `line-lua.ts`) get its key Q as well, behind the pairs of all resources.
 *
 * | script   | when                                     | answer                                                     |
 * |----------|------------------------------------------|------------------------------------------------------------|
 * | acquire  | some L is another owner's                | `{highest F, that owner, longest time left or -1}`         |
 * |          | every L is this owner's already          | `+` and the highest F, nothing changes: a repeat           |
 * |          | otherwise                                | v, above every F: every L is the owner's and every F is v  |
 * | claim    | some L is another's, or offered to one   | as acquire                                                 |
 * |          | otherwise                                | as acquire: an offer to this owner counts as a free lock   |
 * | enqueue  | the ticket does not fit the node's clock | `{'clock', the ticket that would}`                         |
 * |          | every L is the owner's or offered to it  | `{'offered'}`                                              |
 * |          | otherwise                                | `{'behind', who has it, time left or -1}`                  |
 * | confirm  | not every L is the owner's               | `{0, '0'}`                                                 |
 * |          | some F is above t                        | `{2, highest F}`                                           |
 * |          | otherwise                                | `{1, t}`: every F is t                                     |
 * | extend   | for each lease: is every L its owner's?  | 1 (ttl set, F lifted to its token) or 0; never re-creates  |
 * | release  | every L was the owner's                  | how many listeners got the message; 0 with a line          |
 * |          | otherwise                                | -1 less that number                                        |
 * | handOver | every L is the owner's                   | v for the next owner                                       |
 * |          | otherwise                                | `{'0', who has it or '', -1}`                              |
 * | share    | some L is a writer's, or one is in line  | as acquire                                                 |
 * |          | every L is free, or offered to it        | v, above every F: L is the reader's and every F is v       |
 * |          | otherwise                                | every F as in the line above, or the highest if all joined |
 *
 * A number with a `+` (`REPEATED`) says that this owner had some L before: the driver has sent the step twice, or another client leads
 * to the same server. Many steps can go in one call of the acquire script: see `TOGETHER`.
 */
export interface Script {
  readonly name: string
  readonly text: string
  readonly sha: string
  /** The beginning of a call by its hash. */
  readonly call: Piece
}

/** Hashed when it is used: a process uses few of them. */
export function script(name: string, text: string): Script {
  let sha: string | undefined
  let call: Piece | undefined
  return {
    name,
    text,
    get sha() {
      return (sha ??= sha1(text))
    },
    get call() {
      return (call ??= piece('EVALSHA', this.sha))
    },
  }
}

/** Numbers are below 2^53 and must be written in full: Lua's own tostring goes over to 1e+15. */
const NUMBER = `local function text(n) return string.format('%.0f', n) end
local function number(key) return tonumber(redis.call('get', key) or 0) end
`

/**
 * A lock key of another type is unusable: nobody has the lease, and nobody gets it. This is its holder in answers. Any other error
 * says nothing about the key, and must not look like an answer: asked again, it ends the script.
 */
const READ = `local function failed(answer) return type(answer) == 'table' and not string.match(answer['err'], 'WRONGTYPE') end
local function read(key)
  local value = redis.pcall('get', key)
  if failed(value) then redis.call('get', key) end
  if type(value) == 'table' then return '(a key of another type)' end
  return value
end
`

/** A client's clock may be wrong by this much before a node stops following it when it numbers a grant. */
export const CLAMP_US = 2_000_000

/**
 * v := max(highest F + 1, proposal), with the proposal clamped to this node's clock, so that one client whose clock is
 * far off cannot push the numbers away.
 */
const GRANT = `local function numbered(highest, proposal)
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  return math.max(highest + 1, math.min(math.max(proposal, now - ${CLAMP_US}), now + ${CLAMP_US}))
end
local function grant(count, highest, owner, ttl, proposal, fence_ttl)
  local v = numbered(highest, proposal)
  for i = 1, count, 2 do
    redis.call('set', KEYS[i], owner, 'px', ttl)
    redis.call('set', KEYS[i + 1], text(v), 'px', fence_ttl)
  end
  return v
end
`

/** The end of the usual case: L is set; F becomes the proposal p, or one more than it was if that is more. */
function raise(fenceTtl: string): string {
  return `  local before = redis.call('set', KEYS[2], p, 'get', 'px', ${fenceTtl})
  if not before or (#before == #p and before < p) then return p end
  if tonumber(before) < tonumber(p) then return p end
  local v = string.format('%.0f', before + 1)
  redis.call('set', KEYS[2], v, 'px', ${fenceTtl})
  return v
`
}

/** The first acquire of an engine. */
export const FIRST = 'first'

/**
 * Refuses a user who could not renew or release what it gets: the key would stay for its ttl. Since Redis 7 a script can ask for that.
 * A service that answers nonsense is believed to allow it.
 */
const MAY = `  local needed = {'get', 'del', 'pexpire'}
  for i = 1, redis.acl_check_cmd and #needed or 0 do
    local known, allowed = pcall(redis.acl_check_cmd, needed[i], KEYS[1])
    if known and allowed == false then error(redis.error_reply('NOPERM this user has no permissions to run ' .. needed[i])) end
  end
`

/**
 * Refuses a server before Redis 6.2, whose lack of SET … GET only the second lease would find. GETEX came with it,
 * and asked for nothing does nothing.
 */
const NEW_ENOUGH = `  local getex = not redis.acl_check_cmd and redis.pcall('getex')
  if getex and getex['err'] and string.match(getex['err'], 'Unknown') then error('${TOO_OLD}') end
`

/**
 * KEYS: L and F of each resource. ARGV: owner, ttl, proposal, F's ttl, and 'first' where this user's rights are to be looked
 * at. For a claim also Q of each resource, and 'claim'. For a place in the line, see `ENQUEUE`. The three are one script because a node that sits out may do none of them.
 *
 * The usual case, one resource that is free and a proposal in the same second as this node's clock, comes first, with as
 * few calls and conversions as it can be done: a call costs as much as a command of its own. Numbers of equally many
 * digits compare as text.
 * A granted repeat writes F again: only a write makes WAIT wait for the replicas, also after the driver reconnected.
 */
const ACQUIRE_TEXT = `local p = ARGV[3]
if #KEYS == 2 and #ARGV == 4 and redis.call('time')[1] == string.sub(p, 1, -7)
and redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
${raise('ARGV[4]')}end
${NUMBER}${GRANT}${READ}local owner, count, offer = ARGV[1], #KEYS, false
if ARGV[5] == '${FIRST}' then
${NEW_ENOUGH}${MAY}end
if ARGV[5] == 'enqueue' or ARGV[5] == 'share' then
${PASS}${READERS}${JOINS}${ENQUEUE}${SHARE}if ARGV[5] == 'share' then
${NEW_ENOUGH}  return share()
end
return enqueue()
end
if ARGV[5] == 'claim' then
  count = 2 * #KEYS / 3
  offer = '${OFFERED}' .. owner
end
local highest, mine, holder, left = 0, 0, nil, 0
for i = 1, count, 2 do
  highest = math.max(highest, number(KEYS[i + 1]))
  local held = redis.call('get', KEYS[i])
  if held == owner then
    mine = mine + 2
  elseif held and held ~= offer then
    holder = held
    local ttl = redis.call('pttl', KEYS[i])
    if ttl < 0 or left < 0 then left = -1 else left = math.max(left, ttl) end
  end
end
if holder then return {text(highest), holder, left} end
for i = count + 1, #KEYS do redis.call('zrem', KEYS[i], owner, '!' .. owner) end
if mine == count then
  for i = 2, count, 2 do redis.call('set', KEYS[i], text(highest), 'px', ARGV[4]) end
  return '${REPEATED}' .. text(highest)
end
return (mine > 0 and '${REPEATED}' or '') .. text(grant(count, highest, owner, ARGV[2], tonumber(p), ARGV[4]))
`

/** KEYS: L and F of each resource. ARGV: owner, token, F's ttl. */
export const CONFIRM = script(
  'confirm',
  `${NUMBER}local highest = 0
for i = 1, #KEYS, 2 do
  if redis.call('get', KEYS[i]) ~= ARGV[1] then return {0, '0'} end
  highest = math.max(highest, number(KEYS[i + 1]))
end
if highest > tonumber(ARGV[2]) then return {2, text(highest)} end
for i = 2, #KEYS, 2 do redis.call('set', KEYS[i], ARGV[2], 'px', ARGV[3]) end
return {1, ARGV[2]}
`,
)

/**
 * KEYS: L and F of every resource of every lease. ARGV: F's ttl, below which token F is written again in any case, then of
 * each lease: how many resources, owner, ttl, token.
 * Reads in a way that cannot fail: a key that other programs have overwritten must not cost the other leases their renewal.
 */
export const EXTEND = script(
  'extend',
  `${NUMBER}${READ}local answers, key = {}, 1
for a = 3, #ARGV, 4 do
  local last = key + 2 * ARGV[a] - 1
  local ours = 1
  for i = key, last, 2 do
    if read(KEYS[i]) ~= ARGV[a + 1] then ours = 0 end
  end
  if ours == 1 then
    local token = tonumber(ARGV[a + 3])
    for i = key, last, 2 do
      redis.call('pexpire', KEYS[i], ARGV[a + 2])
      local f = tonumber(redis.pcall('get', KEYS[i + 1])) or 0
      if f < token or token < tonumber(ARGV[2]) then
        redis.call('set', KEYS[i + 1], text(math.max(f, token)), 'px', ARGV[1])
      end
    end
  end
  answers[#answers + 1] = ours
  key = last + 1
end
return answers
`,
)

/**
 * KEYS: L and F of each resource, then Q of each where the lock is passed on to those in line. ARGV: owner, token (0 after a
 * failed attempt), F's ttl, 'publish', 'spublish' or nothing, then the channel of each resource, on which the owner is
 * published, or the offer if there is a line. F never changes under another owner: it may have voted for the number that is
 * there. Nothing stops the script halfway: every L is deleted first, one of another type is not ours, and a user that may not
 * publish wakes nobody.
 * It also gives up a place in line, and an offer.
 */
export const RELEASE = script(
  'release',
  `local t = ARGV[2]
if #ARGV == 5 and redis.pcall('get', KEYS[1]) == ARGV[1] and (#KEYS == 2 or not redis.pcall('zrangebyscore', KEYS[3], '(0', '+inf', 'limit', 0, 1)[1]) then
  redis.call('del', KEYS[1])
  if t ~= '0' then
    local f = tonumber(redis.pcall('get', KEYS[2]))
    if not f or f < tonumber(t) then redis.call('set', KEYS[2], t, 'px', ARGV[3]) end
  end
  if ARGV[4] == '' then return 0 end
  return tonumber(redis.pcall(ARGV[4], ARGV[5], ARGV[1])) or 0
end
${NUMBER}${READ}${PASS}${READERS}local token, count = tonumber(t), 2 * (#ARGV - 4)
local holders, ours, told = {}, true, 0
for i = 1, count, 2 do
  holders[i] = read(KEYS[i])
  if holders[i] == ARGV[1] then redis.call('del', KEYS[i]) else ours = false end
end
for i = 1, count, 2 do
  local mine = holders[i] == ARGV[1]
  if token > 0 and (mine or not holders[i]) and (tonumber(redis.pcall('get', KEYS[i + 1])) or 0) < token then
    redis.call('set', KEYS[i + 1], t, 'px', ARGV[3])
  end
  local line, channel, passed = KEYS[count + (i + 1) / 2], ARGV[4 + (i + 1) / 2], false
  local gone = line and redis.pcall('zrem', line, ARGV[1], '!' .. ARGV[1])
  if gone and gone ~= 0 and is_shared(holders[i]) then call_readers(line, ARGV[4], channel) end
  if line and (mine or holders[i] == '${OFFERED}' .. ARGV[1]) then passed = pass(KEYS[i], line, ARGV[4], channel) end
  if mine and not passed and ARGV[4] ~= '' then
    told = math.max(told, tonumber(redis.pcall(ARGV[4], channel, ARGV[1])) or 0)
  end
end
return ours and told or -1 - told
`,
)

/** The steps of readers, apart from those in the acquire script. They have a call of their own. */
export const READER = {
  confirm: script('confirm', `${NUMBER}${READ}${PASS}${READERS}${CONFIRM_READER}`),
  extend: script('extend', `${NUMBER}${READ}${PASS}${READERS}${EXTEND_READERS}`),
  release: script('release', `${NUMBER}${READ}${PASS}${READERS}${RELEASE_READER}`),
}

/**
 * KEYS: L and F of each resource. ARGV: owner, next owner, ttl, proposal, 'over', F's ttl, the owner's token or 0. The usual case first, as in
 * acquire. The next number is above that token also where F is not: a node that sits out may have forgotten that it confirmed it.
 */
export const HAND_OVER = script(
  'handOver',
  `local p = ARGV[4]
if #KEYS == 2 and redis.call('time')[1] == string.sub(p, 1, -7) and redis.pcall('get', KEYS[1]) == ARGV[1] then
  redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
${raise('ARGV[6]')}end
${NUMBER}${GRANT}${READ}local highest, given = tonumber(ARGV[7]), 0
for i = 1, #KEYS, 2 do
  local held = read(KEYS[i])
  if held == ARGV[2] then given = given + 2 elseif held ~= ARGV[1] then return {'0', held or '', -1} end
  highest = math.max(highest, number(KEYS[i + 1]))
end
if given == #KEYS then
  for i = 2, #KEYS, 2 do redis.call('set', KEYS[i], text(highest), 'px', ARGV[6]) end
  return '${REPEATED}' .. text(highest)
end
return (given > 0 and '${REPEATED}' or '') .. text(grant(#KEYS, highest, ARGV[2], ARGV[3], tonumber(p), ARGV[6]))
`,
)

/**
 * Many steps in one call, in order, each all or none, by the texts of the single steps: as functions, they get the keys and
 * arguments of their step under the names by which a script knows its own. ARGV of each: the first letter of its name, its number of
 * keys, its number of arguments, and these. Returns the answers. A step that fails is answered by 'failed' and its
 * error, and costs the others nothing. A server that has become a replica refuses all of them alike: that is one
 * error, because drivers look for it.
 */
const TOGETHER = `local function acquire(KEYS, ARGV)
${ACQUIRE_TEXT}end
local function confirm(KEYS, ARGV)
${CONFIRM.text}end
local function release(KEYS, ARGV)
${RELEASE.text}end
local function hand_over(KEYS, ARGV)
${HAND_OVER.text}end
if ARGV[5] == 'over' then return hand_over(KEYS, ARGV) end
local answers, key, arg = {}, 1, 1
for count = 1, #KEYS do
  if key > #KEYS then return answers end
  local keys, args = {}, {}
  for i = 1, tonumber(ARGV[arg + 1]) do keys[i] = KEYS[key + i - 1] end
  for i = 1, tonumber(ARGV[arg + 2]) do args[i] = ARGV[arg + i + 2] end
  local step = acquire
  if ARGV[arg] == 'c' then step = confirm end
  if ARGV[arg] == 'r' then step = release end
  if ARGV[arg] == 'h' then step = hand_over end
  local ok, answer = pcall(step, keys, args)
  if not ok then
    if type(answer) == 'table' then answer = answer['err'] end
    if string.match(answer, 'READONLY') then return redis.error_reply(answer) end
    answer = {'failed', answer}
  end
  answers[count] = answer
  key = key + #keys
  arg = arg + #args + 3
end
return answers
`

/** An acquire alone has four arguments; the first one, a claim, a place in the line, a reader or a hand-over says so by the fifth. Several steps have more. */
const ACQUIRE_OR_TOGETHER = `if #ARGV == 4 or ARGV[5] == '${FIRST}' or ARGV[5] == 'claim' or ARGV[5] == 'enqueue' or ARGV[5] == 'share' then
${ACQUIRE_TEXT}end
${TOGETHER}`

/** Acquire where every node votes at all times, and steps together of which none is a vote. */
export const ACQUIRE = script('acquire', ACQUIRE_OR_TOGETHER)

/**
 * Acquire, for nodes that sit out after a restart: same steps, but a hash of its own for each epoch, because knowing one that is
 * loaded is what gives a client the node's vote (see `voters/admission.ts`).
 */
export function epochScript(epoch: string): Script {
  return script('acquire', `-- ${epoch}\n${ACQUIRE_OR_TOGETHER}`)
}

/**
 * KEYS: L and F of each resource, then Q of each and S of each unless this user may not use them. ARGV: how many resources. Returns
 * owner (or ''), time left (-1 without end), F, those in line with their tickets, the readers with their times left, and this node's
 * clock in µs, of each. The owner of a lock that is offered is the offer.
 */
export const INSPECT = script(
  'inspect',
  `${READ}${WAITING}${READING}local answers, count, time = {}, 2 * ARGV[1], redis.call('time')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
for i = 1, count, 2 do
  local fence = read(KEYS[i + 1])
  local owner = read(KEYS[i]) or ''
  local key = KEYS[count + (i + 1) / 2]
  local line = key and waiting(key) or {}
  local readers = key and string.sub(owner, 1, ${SHARED.length}) == '${SHARED}' and reading(KEYS[count + count / 2 + (i + 1) / 2]) or {}
  answers[#answers + 1] = {owner, redis.call('pttl', KEYS[i]), tonumber(fence) and fence or '0', line, readers, now}
end
return answers
`,
)
