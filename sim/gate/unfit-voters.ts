import { mutation, type Mutation } from './mutation.ts'

const ADMISSION = 'src/engines/redis/voters/admission.js'
const STAMP = 'src/engines/redis/voters/stamp.js'
const STANDING = 'src/engines/redis/voters/standing.js'

/** Bugs by which a node votes that may have forgotten leases. */
export const UNFIT_VOTERS: readonly Mutation[] = [
  mutation(
    'a node that restarted votes at once',
    'wrong variant',
    'seeds',
    'src/engines/redis/make.js',
    "const sitOutMs = kind.restart === 'trust' ? 0 : Math.max(maxTtlMs, LEAST_SIT_OUT_MS) + UPTIME_GRAIN_MS",
    'const sitOutMs = 0',
  ),
  mutation(
    'a node is let in without a look at how long it sat out',
    'own',
    'seeds',
    STANDING,
    'if (since !== undefined && nowMs - since.ms >= sitOutMs)',
    'if (since !== undefined)',
  ),
  mutation(
    'a node that kept its stamp is taken for one that forgets nothing',
    'own',
    'seeds',
    STANDING,
    '!rules.forgetsNothing || ',
    '',
    ' && wasDurable',
    '',
  ),
  mutation(
    'a node sits out for the leases, but not for the numbers',
    'wrong variant, found by the simulator',
    'seeds',
    'src/engines/redis/make.js',
    'Math.max(maxTtlMs, LEAST_SIT_OUT_MS) + UPTIME_GRAIN_MS',
    'maxTtlMs',
  ),
  mutation(
    'a rolling restart is taken for a new deployment',
    'own',
    'seeds',
    'src/engines/redis/voters/electorate.js',
    'if (isNew(looks, this.#memory, this.#rules))',
    "if (looks.every((one) => one?.epoch === ''))",
    'const others = mayBeNew || dependsOnOthers(look, rules) ? await this.#survey(voter, withinMs) : undefined;',
    'const others = await this.#survey(voter, withinMs);',
    'overrules: LEVEL.used',
    'overrules: LEVEL.sure',
  ),
  mutation(
    'an empty node votes at once if it has been up for long',
    'own',
    'seeds',
    STANDING,
    'if (all !== undefined && mayHaveSatOut(look, sitOutMs) && isUnusedSinceStart(look, all, memory, sitOutMs))',
    'if (look.uptimeMs >= sitOutMs)',
  ),
  mutation(
    'a node that was restored from an old copy votes at once',
    'own',
    'seeds',
    STANDING,
    ' && seenMs !== undefined && Math.abs(nowMs - seenMs) <= rules.sitOutMs',
    '',
  ),
  mutation(
    'a process forgets that the quorum was in use',
    'own',
    'seeds',
    'src/engines/redis/voters/electorate.js',
    "const mayBeNew = !this.#inUse && rules.restart === 'auto'",
    "const mayBeNew = rules.restart === 'auto'",
    'return { inUse: this.#inUse, votedAgoMs };',
    'return { inUse: false, votedAgoMs: undefined };',
  ),
  mutation(
    'an epoch is published without a look at the run',
    'own',
    'admission',
    STAMP,
    "if run ~= ARGV[1] then return {'another run', ''} end",
    '',
  ),
  mutation(
    'a client draws one epoch for all its loads',
    'own',
    'admission',
    ADMISSION,
    'const epoch = this.#random.id();',
    'const epoch = (this.always ??= this.#random.id());',
  ),
]
