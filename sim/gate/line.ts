import { mutation, type Mutation } from './mutation.ts'

const LINE = 'src/engines/redis/line-lua.js'
const SCRIPTS = 'src/engines/redis/scripts.js'
const PASSES = "if line and (mine or holders[i] == '${OFFERED}' .. ARGV[1]) then passed"

/** Bugs of the line on the servers: two hold it, tokens repeat, the order is not kept, or nobody gets on. */
export const LINE_BUGS: readonly Mutation[] = [
  mutation(
    'an offer is a lock that is held',
    'wrong variant',
    'line',
    LINE,
    "local offer = '${OFFERED}' .. first",
    'local offer = first',
  ),
  mutation(
    'a release passes on a lock that is not its own',
    'wrong variant',
    'line',
    SCRIPTS,
    PASSES,
    'if line then passed',
  ),
  mutation(
    'an offer does not go over to an owner that has waited longer',
    'wrong variant',
    'line',
    LINE,
    "if not held or string.sub(held, 1, ${OFFERED.length}) == '${OFFERED}' then",
    'if not held then',
  ),
  mutation(
    'an owner that takes over a place leaves the lock of the owner before it',
    'wrong variant',
    'line',
    LINE,
    'if held == old then',
    "if held == '' then",
  ),
  mutation(
    'a lock that is offered to another can be acquired',
    'own',
    'line',
    SCRIPTS,
    'elseif held and held ~= offer then',
    "elseif held and string.sub(held, 1, 8) ~= '${OFFERED}' then",
  ),
  mutation(
    'the last in line is served first',
    'own',
    'line',
    LINE,
    "local first = redis.pcall('zrangebyscore', line, '(0', '+inf', 'limit', 0, 1)[1]",
    "local all = redis.pcall('zrangebyscore', line, '(0', '+inf')\n  local first = all[#all]",
  ),
  mutation(
    'validity of a claim counts from its answer',
    'peers 3',
    'seeds',
    'src/engines/redis/line-wait.js',
    'return { ...grant, owner, since };',
    'return { ...grant, owner, since: instant(this.#plan.clock) };',
  ),
  mutation(
    'a claim that is granted after its place was taken over stays',
    'found by the simulator',
    'seeds',
    'src/engines/redis/line-wait.js',
    'line.isLeftOver = line.isAsked;',
    '',
  ),
]
