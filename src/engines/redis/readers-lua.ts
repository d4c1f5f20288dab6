import { OFFERED } from './line-lua.ts'

/**
 * Shared leases on one node: many readers, or one writer. S is a sorted set beside L, F and Q, of the readers by the time, in ms of
 * the node's clock, at which each one's lease ends. A reader's name in S, in Q and in offers is `shared:` and its owner.
 *
 * While there are readers, L is the name of the one that lasts longest, and ends with it: to a writer, and to other software, that is
 * a lock of another owner, so writers need not know of S. Where L is no reader's name, S means nothing, whatever is left in it.
 *
 * The first reader is numbered as a writer is, above every F before it. Those who join get that F. So a reader has a number above that of
 * every writer before it, and every writer after it has one above all of theirs. A vote for token t is, as everywhere, a step after which
 * the reader is in S and F = t.
 */
export const SHARED = 'shared:'

/** Before the number of a grant to an owner that had the lease, or a part of it, already. */
export const REPEATED = '+'

/** For the texts below. `text`, `read`, `failed` and `prune` are those of the script that they are a part of. */
export const READERS = `local function is_shared(value) return type(value) == 'string' and string.sub(value, 1, ${SHARED.length}) == '${SHARED}' end
local function ms()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function reads(readers, name)
  local ends = redis.pcall('zscore', readers, name)
  if failed(ends) then redis.call('zscore', readers, name) end
  return (tonumber(ends) or 0) >= ms()
end
local function settle(lock, readers)
  local now = ms()
  local ended = redis.call('zrangebyscore', readers, '-inf', '(' .. text(now))
  for i = 1, #ended do redis.call('zrem', readers, ended[i]) end
  local last = redis.call('zrange', readers, -1, -1, 'withscores')
  if not last[1] then
    redis.call('del', lock)
    return false
  end
  redis.call('set', lock, last[1], 'pxat', last[2])
  redis.call('pexpire', readers, text(last[2] - now + 1))
  return last[1]
end
local function call_readers(line, publish, channel)
  if publish == '' then return end
  prune(line)
  local all = redis.pcall('zrangebyscore', line, '(0', '+inf')
  for i = 1, #all do
    if not is_shared(all[i]) then return end
    redis.pcall(publish, channel, '${OFFERED}' .. all[i])
  end
end
`

/** A reader joins others only if no writer is in line before it; one that is not in line comes behind all that are. */
export const JOINS = `local function joins(line, name)
  prune(line)
  local all = redis.call('zrangebyscore', line, '(0', '+inf')
  for i = 1, #all do
    if all[i] == name then return true end
    if not is_shared(all[i]) then return false end
  end
  return true
end
`

/**
 * An acquire, or a claim, of a reader. KEYS: L and F of each resource, then Q of each, then S of each. ARGV: name, ttl, proposal, F's ttl,
 * 'share', 'publish' or 'spublish', then the channel of each resource, on which the readers behind the first one are told.
 * A repeat never shortens: its reader may have been renewed meanwhile.
 */
export const SHARE = `local function share()
  local name, count = ARGV[1], #KEYS / 4
  local highest, holder, left = 0, nil, 0
  local first, free, repeated = false, {}, ''
  for n = 1, count do
    local lock = KEYS[2 * n - 1]
    highest = math.max(highest, number(KEYS[2 * n]))
    local held = redis.call('get', lock)
    if not held or held == '${OFFERED}' .. name then
      free[n] = true
      first = true
    elseif is_shared(held) and reads(KEYS[3 * count + n], name) then
      repeated = '${REPEATED}'
    elseif not is_shared(held) or not joins(KEYS[2 * count + n], name) then
      holder = held
      local ttl = redis.call('pttl', lock)
      if ttl < 0 or left < 0 then left = -1 else left = math.max(left, ttl) end
    end
  end
  if holder then return {text(highest), holder, left} end
  local v = highest
  if first or v == 0 then v = numbered(highest, tonumber(ARGV[3])) end
  local ends = text(ms() + ARGV[2])
  for n = 1, count do
    local line, readers = KEYS[2 * count + n], KEYS[3 * count + n]
    if free[n] then redis.call('del', readers) end
    redis.call('zadd', readers, 'gt', ends, name)
    settle(KEYS[2 * n - 1], readers)
    redis.call('set', KEYS[2 * n], text(v), 'px', ARGV[4])
    redis.pcall('zrem', line, name, '!' .. name)
    if free[n] then call_readers(line, ARGV[6], ARGV[6 + n]) end
  end
  return repeated .. text(v)
end
`

/** KEYS: as in `SHARE`. ARGV: name, token, F's ttl. */
export const CONFIRM_READER = `local count, highest = #KEYS / 4, 0
for n = 1, count do
  if not is_shared(redis.call('get', KEYS[2 * n - 1])) or not reads(KEYS[3 * count + n], ARGV[1]) then return {0, '0'} end
  highest = math.max(highest, number(KEYS[2 * n]))
end
if highest > tonumber(ARGV[2]) then return {2, text(highest)} end
for n = 1, count do redis.call('set', KEYS[2 * n], ARGV[2], 'px', ARGV[3]) end
return {1, ARGV[2]}
`

/** KEYS: of each lease, as in `SHARE`. ARGV: as in extend. */
export const EXTEND_READERS = `local answers, key = {}, 0
for a = 3, #ARGV, 4 do
  local count, name, token = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 3])
  local ours = 1
  for n = 1, count do
    if not is_shared(read(KEYS[key + 2 * n - 1])) or not reads(KEYS[key + 3 * count + n], name) then ours = 0 end
  end
  for n = 1, ours * count do
    local fence, readers = KEYS[key + 2 * n], KEYS[key + 3 * count + n]
    redis.call('zadd', readers, text(ms() + ARGV[a + 2]), name)
    settle(KEYS[key + 2 * n - 1], readers)
    local f = tonumber(redis.pcall('get', fence)) or 0
    if f < token or token < tonumber(ARGV[2]) then redis.call('set', fence, text(math.max(f, token)), 'px', ARGV[1]) end
  end
  answers[#answers + 1] = ours
  key = key + 4 * count
end
return answers
`

/**
 * KEYS: as in `SHARE`. ARGV: name, token, F's ttl, 'publish', 'spublish' or nothing, 'pass' or nothing, then the channel of each resource.
 * The lock of the other readers stays. The last one's is passed on to the first in line, or is free where nobody waits. It also gives up a
 * place in line, and an offer.
 */
export const RELEASE_READER = `local name, token, count = ARGV[1], tonumber(ARGV[2]), #KEYS / 4
local ours, told = true, 0
for n = 1, count do
  local lock, fence, line, readers = KEYS[2 * n - 1], KEYS[2 * n], KEYS[2 * count + n], KEYS[3 * count + n]
  local channel, passed = ARGV[5 + n], false
  local held = read(lock)
  local mine = is_shared(held) and reads(readers, name)
  if not mine then ours = false end
  if token > 0 and (mine or not held) and (tonumber(redis.pcall('get', fence)) or 0) < token then
    redis.call('set', fence, ARGV[2], 'px', ARGV[3])
  end
  redis.pcall('zrem', line, name, '!' .. name)
  local gone = is_shared(held) and redis.pcall('zrem', readers, name)
  if failed(gone) then redis.call('zrem', readers, name) end
  if gone == 1 and not settle(lock, readers) then
    if ARGV[5] == 'pass' then passed = pass(lock, line, ARGV[4], channel) end
    if not passed and ARGV[4] ~= '' then told = math.max(told, tonumber(redis.pcall(ARGV[4], channel, name)) or 0) end
  elseif held == '${OFFERED}' .. name then
    pass(lock, line, ARGV[4], channel)
  end
end
return ours and told or -1 - told
`

/** Readers of a node whose leases have not ended, each followed by the time left in ms. */
export const READING = `local function reading(readers)
  local time = redis.call('time')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local all = redis.pcall('zrangebyscore', readers, string.format('%.0f', now), '+inf', 'withscores')
  local left = {}
  for i = 1, #all, 2 do
    left[i] = all[i]
    left[i + 1] = all[i + 1] - now
  end
  return left
end
`
