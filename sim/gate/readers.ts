import { mutation, type Mutation } from './mutation.ts'

const READERS = 'src/engines/redis/readers-lua.js'
const SCRIPTS = 'src/engines/redis/scripts.js'

/** Bugs of shared leases: a writer beside a reader, a reader with a writer's token, or a writer that nobody lets in. */
export const READER_BUGS: readonly Mutation[] = [
  mutation(
    'confirm says yes to a reader above its number',
    'wrong variant',
    'readers',
    READERS,
    'if highest > tonumber(ARGV[2]) then return {2, text(highest)} end',
    'if highest > tonumber(ARGV[2]) then return {1, ARGV[2]} end',
  ),
  mutation(
    'the first reader does not raise the counter',
    'wrong variant',
    'readers',
    READERS,
    'if first or v == 0 then v = numbered(highest, tonumber(ARGV[3])) end',
    'if v == 0 then v = 1 end',
  ),
  mutation(
    'confirm does not look whether it is a reader',
    'wrong variant',
    'readers',
    READERS,
    "if not is_shared(redis.call('get', KEYS[2 * n - 1])) or not reads(KEYS[3 * count + n], ARGV[1]) then return {0, '0'} end",
    '',
  ),
  mutation(
    'a reader that joins does not make the lock last longer',
    'wrong variant',
    'readers',
    READERS,
    "redis.call('set', lock, last[1], 'pxat', last[2])",
    "if redis.call('exists', lock) == 0 then redis.call('set', lock, last[1], 'pxat', last[2]) end",
  ),
  mutation(
    "a writer takes the readers' lock for a free one",
    'wrong variant',
    'readers',
    SCRIPTS,
    'elseif held and held ~= offer then',
    "elseif held and held ~= offer and string.sub(held, 1, 7) ~= '${SHARED}' then",
  ),
  mutation(
    'the release of one reader deletes the lock of the others',
    'wrong variant',
    'readers',
    READERS,
    'if gone == 1 and not settle(lock, readers) then',
    "if gone == 1 and redis.call('del', lock) == 1 then",
  ),
  mutation(
    'a reader joins although a writer is in line before it',
    'wrong variant',
    'readers',
    READERS,
    'if not is_shared(all[i]) then return false end',
    '',
  ),
  mutation(
    'a reader that takes over a place leaves the lease of the owner before it',
    'own',
    'readers',
    'src/engines/redis/line-lua.js',
    "if is_shared(held) and redis.call('zrem', readers, old) == 1 then held = settle(lock, readers) end",
    '',
  ),
]
