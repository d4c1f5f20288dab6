/**
 * The line of a resource on one node: who waits for it, in the order in which they came. It is a sorted set Q beside L and F.
 *
 * | member      | score                                                                             |
 * |-------------|-----------------------------------------------------------------------------------|
 * | an owner    | its ticket: the wall clock in µs of its process when the wait began               |
 * | `!` + owner | minus the time, in µs of the node's clock, until which its place is kept           |
 *
 * A lock that is released while someone waits is not deleted: L becomes an *offer* to the first of the line, for a short time.
 * An offer is not a vote and not a lease. To its heir it is a free lock, to everybody else it is a lock that is held. So the
 * line decides only who may try next. Who holds the lock, and with which number, is decided as without a line.
 */
export const OFFERED = 'offered:'

/** How long an offer stands. An heir that has not claimed it by then is skipped unless it has come again. */
export const OFFER_MS = 2000

/** A place is kept for this long after its owner last came. */
export const PLACE_MS = 3000

/**
 * By how much a ticket may differ from a node's clock. That a clock is wrong by less changes the order of the waits by no more
 * than that; a node that is stricter would have no line for anybody when its own clock is wrong.
 */
const TICKET_RANGE_US = 60_000_000

/** Takes places away that are not kept any longer. Returns the time in µs of the node's clock. */
const PRUNE = `local function prune(line)
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local gone = redis.pcall('zrangebyscore', line, '(' .. string.format('%.0f', -now), '(0')
  for i = 1, #gone do redis.pcall('zrem', line, gone[i], string.sub(gone[i], 2)) end
  return now
end
`

/**
 * Where L is gone or an offer: it becomes an offer to the first of the line whose place is kept, or is deleted where there is
 * none. Returns whether there is one. Nothing stops it halfway: a user that may not use sorted sets has no line.
 * A place ends with the offer, so that an heir that is dead gets one offer and not two.
 */
export const PASS = `${PRUNE}local function pass(lock, line, publish, channel)
  local now = prune(line)
  local first = redis.pcall('zrangebyscore', line, '(0', '+inf', 'limit', 0, 1)[1]
  local held = redis.pcall('get', lock)
  if not first then
    if held then redis.call('del', lock) end
    return false
  end
  local offer = '${OFFERED}' .. first
  if held ~= offer then
    redis.call('set', lock, offer, 'px', ${OFFER_MS})
    redis.pcall('zadd', line, 'xx', 'gt', string.format('%.0f', -now - ${OFFER_MS * 1000}), '!' .. first)
    if publish ~= '' then redis.pcall(publish, channel, offer) end
  end
  return true
end
`

/**
 * KEYS: L and F of each resource, then Q of each; of a reader, then S of each. ARGV: owner, ticket, how long it has waited in µs, the owner
 * whose place it takes (or nothing), 'enqueue', 'publish' or 'spublish', then the channel of each resource.
 *
 * The old place is taken away first, also where there is none: a user that may not leave a line must not join it.
 * A ticket that does not fit this node's clock is refused, and not changed: nodes that changed it would put the waiters in
 * different orders.
 * To a reader, a lock that it may join counts as one that is offered to it.
 */
export const ENQUEUE = `local function enqueue()
  local reader, old = is_shared(owner), ARGV[4]
  local count = reader and #KEYS / 4 or #KEYS / 3
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local began = now - ARGV[3]
  if math.max(began - ARGV[2], ARGV[2] - began) > ${TICKET_RANGE_US} then return {'clock', text(began)} end
  local answer = {'offered'}
  for n = 1, count do
    local lock, line, readers = KEYS[2 * n - 1], KEYS[2 * count + n], KEYS[3 * count + n]
    local held = read(lock)
    local mine = held == owner
    redis.call('zrem', line, old, '!' .. old)
    if reader then mine = is_shared(held) and reads(readers, owner) end
    if not mine then
      redis.call('zadd', line, ARGV[2], owner, text(-now - ${PLACE_MS * 1000}), '!' .. owner)
      redis.call('pexpire', line, ${PLACE_MS})
    end
    if old ~= '' then
      if reader then
        if is_shared(held) and redis.call('zrem', readers, old) == 1 then held = settle(lock, readers) end
      elseif held == old then
        redis.call('del', lock)
        held = false
      end
    end
    if not held or string.sub(held, 1, ${OFFERED.length}) == '${OFFERED}' then
      pass(lock, line, ARGV[6], ARGV[6 + n])
      held = read(lock)
      if held == '${OFFERED}' .. owner then redis.call('pexpire', lock, ${OFFER_MS}) end
    end
    local may = mine or held == '${OFFERED}' .. owner or (reader and is_shared(held) and joins(line, owner))
    if not may then answer = {'behind', held or '', redis.call('pttl', lock)} end
  end
  return answer
end
`

/** Those in line whose place is kept, each followed by its ticket. None where this user may not look. */
export const WAITING = `local function waiting(line)
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local gone, kept = {}, {}
  local ended = redis.pcall('zrangebyscore', line, '(' .. string.format('%.0f', -now), '(0')
  for i = 1, #ended do gone[string.sub(ended[i], 2)] = true end
  local all = redis.pcall('zrangebyscore', line, '(0', '+inf', 'withscores')
  for i = 1, #all, 2 do
    if not gone[all[i]] then
      kept[#kept + 1] = all[i]
      kept[#kept + 1] = all[i + 1]
    end
  end
  return kept
end
`
