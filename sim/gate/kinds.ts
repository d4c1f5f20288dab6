import { mutation, type Mutation } from './mutation.ts'

/** Bugs of semaphores, of leases that move, of calls inside of others, and of effects that happen once. */
export const KIND_BUGS: readonly Mutation[] = [
  mutation(
    'a pool has one permit more than it says',
    'own',
    'kinds',
    'src/permits.js',
    'for (let permit = 0; permit < this.count; permit++) {',
    'for (let permit = 0; permit <= this.count; permit++) {',
  ),
  mutation(
    'a lease that was handed off goes on where it was',
    'own',
    'kinds',
    'src/holdings.js',
    "this.#keeper.end(record, 'moved');",
    '',
  ),
  mutation(
    'a lease is handed over without a look whose it is',
    'own',
    'kinds',
    'src/engines/redis/scripts.js',
    " and redis.pcall('get', KEYS[1]) == ARGV[1] then",
    ' then',
    "if held == ARGV[2] then given = given + 2 elseif held ~= ARGV[1] then return {'0', held or '', -1} end",
    'if held == ARGV[2] then given = given + 2 end',
  ),
  mutation(
    'the end of a call that joined a lease releases it',
    'own',
    'kinds',
    'src/lease.js',
    'if (this.#isJoined)\n            return (this.#left ??= Promise.resolve(this.held));',
    '',
  ),
  mutation(
    'a call inside of another waits for its own lease',
    'own',
    'kinds',
    'src/locks.js',
    'return reentrant ? this.#calls.nesting.join({ resources, shared }) : undefined;',
    'return undefined;',
  ),
  mutation(
    'an effect does not look whether it has happened',
    'own',
    'kinds',
    'src/guards/redis-records.js',
    'if done then return done end',
    '',
  ),
  mutation(
    'an effect is let in without a look at the token',
    'own',
    'kinds',
    'src/guards/redis.js',
    'if whose == engine and newer or whose ~= engine and whose ~= from then',
    'if whose ~= engine and whose ~= from then',
  ),
]
