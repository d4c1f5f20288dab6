/**
 * A bug, put back by changing the compiled code of a copy. `find` must occur exactly once, so that a mutation that no longer
 * fits the code fails instead of passing for caught.
 */
export interface Mutation {
  readonly name: string
  /** Where it is known from: a number of the list of peers' bugs, a wrong variant of the protocol, or our own history. */
  readonly from: string
  readonly file: string
  readonly changes: readonly { readonly find: string; readonly replace: string }[]
  /** By what it is to be caught. */
  readonly by: 'exploration' | 'seeds'
}

const SCRIPTS = 'src/engines/redis/scripts.js'
const VOTES = 'src/engines/redis/votes.js'
const QUORUM = 'src/engines/redis/quorum.js'
const EXTEND = 'src/engines/redis/extend.js'
const ADMISSION = 'src/engines/redis/admission.js'
const ELECTION = 'src/engines/redis/election.js'
const NODE = 'src/engines/redis/node.js'
const LONE = 'src/engines/redis/lone.js'
const WAKEUPS = 'src/engines/redis/wakeups.js'
const DESK = 'src/desk.js'
const KEEPER = 'src/keeper.js'
const WAITER = 'src/waiter.js'

function mutation(name: string, from: string, by: Mutation['by'], file: string, ...pairs: string[]): Mutation {
  const changes = Array.from({ length: pairs.length / 2 }, (_, at) => ({
    find: pairs[2 * at]!,
    replace: pairs[2 * at + 1]!,
  }))
  return { name, from, by, file, changes }
}

export const MUTATIONS: readonly Mutation[] = [
  // The protocol: variants that look right.
  mutation(
    'the token is the highest grant, without a second phase',
    'wrong variant',
    'exploration',
    VOTES,
    "return { kind: 'confirm', token: lowest, nodes };",
    "return { kind: 'won', token: Math.max(...ours.map(({ fence }) => fence)) };",
  ),
  mutation(
    'confirm does not look whose lock it is',
    'wrong variant',
    'exploration',
    SCRIPTS,
    "if redis.call('get', KEYS[i]) ~= ARGV[1] then return {0, '0'} end",
    '',
  ),
  mutation(
    'confirm says yes above its number',
    'wrong variant',
    'exploration',
    SCRIPTS,
    'if highest > tonumber(ARGV[2]) then return {2, text(highest)} end',
    'if highest > tonumber(ARGV[2]) then return {1, ARGV[2]} end',
  ),
  mutation(
    'a number that is higher than the one to confirm counts as a vote',
    'wrong variant',
    'exploration',
    VOTES,
    "return { ...ballot, state: 'ours', fence: answer.fence };",
    "return { ...ballot, state: 'ours', fence: answer.fence, votes: [...ballot.votes, answer.fence - 1] };",
  ),
  mutation(
    'acquire does not raise the counter (long way)',
    'wrong variant',
    'exploration',
    SCRIPTS,
    'local v = math.max(highest + 1, ',
    'local v = math.max(highest, ',
  ),
  mutation(
    'acquire does not raise the counter (short way)',
    'wrong variant',
    'exploration',
    SCRIPTS,
    "local v = string.format('%.0f', before + 1)",
    "local v = string.format('%.0f', before + 0)",
  ),
  mutation(
    'a quorum of half the nodes',
    'peers 8',
    'exploration',
    VOTES,
    'return Math.floor(size / 2) + 1;',
    'return Math.floor(size / 2);',
  ),
  mutation(
    'one owner for all attempts',
    'wrong variant, peers 15',
    'seeds',
    DESK,
    '`${this.random.id()}@${this.#label}`',
    '`${this.#label}`',
  ),
  mutation(
    'a node that restarted votes at once',
    'wrong variant',
    'seeds',
    'src/engines/redis/index.js',
    "sitOutMs: kind.restart === 'trust' ? 0 : Math.max(kind.maxTtlMs, LEAST_SIT_OUT_MS) + UPTIME_GRAIN_MS",
    'sitOutMs: 0',
  ),
  mutation(
    'a node is let in without a look at its uptime',
    'own',
    'seeds',
    ADMISSION,
    'if (run.uptimeMs < this.#sitOutMs && ',
    'if (run.uptimeMs < 0 && ',
  ),
  mutation(
    'a node that kept its stamp is taken for one that forgets nothing',
    'own',
    'seeds',
    ADMISSION,
    ' || !(await this.#forgetsNothing())',
    '',
  ),
  mutation(
    'half of the nodes are a quorum where their number is even',
    'peers 1, 8',
    'seeds',
    VOTES,
    'return Math.floor(size / 2) + 1;',
    'return Math.ceil(size / 2);',
  ),
  mutation(
    'a node sits out for the leases, but not for the numbers',
    'wrong variant, found by the simulator',
    'seeds',
    'src/engines/redis/index.js',
    'Math.max(kind.maxTtlMs, LEAST_SIT_OUT_MS) + UPTIME_GRAIN_MS',
    'kind.maxTtlMs + UPTIME_GRAIN_MS',
  ),
  // Tokens.
  mutation(
    'tokens come from the clock alone',
    'peers 10',
    'seeds',
    SCRIPTS,
    'local v = math.max(highest + 1, math.min(',
    'local v = math.max(1, math.min(',
    'if not before or (#before == #p and before < p) then return p end',
    'if true then return p end',
  ),
  mutation(
    'the counter is deleted with the lock',
    'peers 10',
    'seeds',
    SCRIPTS,
    "  redis.call('del', KEYS[1])\n  if t ~= '0' then",
    "  redis.call('del', KEYS[1])\n  redis.call('del', KEYS[2])\n  if t == 'never' then",
  ),
  // Whose lock it is.
  mutation(
    'acquire takes a lock that is held',
    'own',
    'seeds',
    SCRIPTS,
    "ARGV[1], 'nx', 'px', ARGV[2])",
    "ARGV[1], 'px', ARGV[2])",
  ),
  mutation(
    'release deletes the lock of others',
    'unlock of someone else’s lock',
    'seeds',
    SCRIPTS,
    "if #KEYS == 2 and redis.call('get', KEYS[1]) == ARGV[1] then\n  redis.call('del', KEYS[1])",
    "if #KEYS == 2 and redis.call('get', KEYS[1]) then\n  redis.call('del', KEYS[1])",
  ),
  mutation(
    'a hand-over keeps the number',
    'own',
    'seeds',
    SCRIPTS,
    "${raise('ARGV[5]')}end",
    "  return redis.call('get', KEYS[2])\nend",
  ),
  mutation(
    'an extension does not look whose lock it is',
    'own',
    'seeds',
    SCRIPTS,
    "if redis.pcall('get', KEYS[i]) ~= ARGV[a + 1] then ours = 0 end",
    '',
  ),
  mutation(
    'an extension puts a key back that is gone',
    'peers 21',
    'seeds',
    SCRIPTS,
    "if redis.pcall('get', KEYS[i]) ~= ARGV[a + 1] then ours = 0 end",
    "local held = redis.pcall('get', KEYS[i])\n    if not held then redis.call('set', KEYS[i], ARGV[a + 1]) elseif held ~= ARGV[a + 1] then ours = 0 end",
  ),
  mutation(
    'an extension counts nodes whose key it has put back',
    'peers 14',
    'seeds',
    EXTEND,
    'if (yes && !repaired)',
    'if (yes)',
  ),
  // Time.
  mutation(
    'a lease whose time is over is handed out',
    'peers 3',
    'seeds',
    DESK,
    'return leftMs > ttlMs * LEAST_PART_LEFT && !this.#closed;',
    'return !this.#closed;',
  ),
  mutation(
    'validity counts from the answer',
    'peers 3',
    'seeds',
    DESK,
    '                        since,\n                        chain: undefined,',
    '                        since: instant(this.clock),\n                        chain: undefined,',
  ),
  mutation(
    'validity of a hand-over counts from its answer',
    'peers 3',
    'seeds',
    DESK,
    '                since,\n                chain,',
    '                since: instant(this.clock),\n                chain,',
  ),
  mutation(
    'a renewal counts from its answer',
    'peers 4',
    'seeds',
    KEEPER,
    'record.renewed(since, ttlMs);',
    'record.renewed(instant(this.#clock), ttlMs);',
  ),
  mutation(
    'validity by the wall clock alone',
    'peers 7',
    'seeds',
    'src/clock.js',
    'return Math.max(clock.monotonicMs() - since.monotonicMs, clock.wallMs() - since.wallMs);',
    'return clock.wallMs() - since.wallMs;',
  ),
  mutation(
    'nothing is allowed for drift',
    'own',
    'seeds',
    'src/engines/redis/index.js',
    'driftMs: (ttlMs) => Math.ceil(ttlMs * drift) + 2',
    'driftMs: () => 0',
  ),
  mutation(
    'the signal waits for the pending renewal',
    'peers 4',
    'seeds',
    KEEPER,
    'if (this.#signalInMs(record) <= 0)',
    'if (record.extending === undefined && this.#signalInMs(record) <= 0)',
  ),
  mutation(
    'no signal at the end of validity',
    'peers 4',
    'seeds',
    KEEPER,
    'if (this.#signalInMs(record) <= 0)',
    'if (this.#signalInMs(record) <= -1e9)',
  ),
  mutation(
    'a delay is counted from the end of a pause',
    'found by the simulator',
    'seeds',
    KEEPER,
    'const leftMs = Math.ceil(atMs - this.#clock.monotonicMs());',
    'const leftMs = wholeMs;',
  ),
  mutation(
    'a node that does not answer counts as proof',
    'own',
    'seeds',
    EXTEND,
    'if (yes === undefined)\n            return;',
    'if (yes === undefined)\n            yes = true;',
  ),
  mutation(
    'renewals follow each other without a pause',
    'peers 5',
    'seeds',
    'src/lease.js',
    'this.renewAfterMs = ttlMs / 3;',
    'this.renewAfterMs = 0;',
  ),
  // Cleaning up.
  mutation(
    'a lone node keeps what it granted after its time',
    'peers 6, 20',
    'seeds',
    LONE,
    'ttlMs, undo).then(outcome, (cause) => {\n            if (!(cause instanceof NotSentError))\n                undo();',
    'ttlMs).then(outcome, (cause) => {',
  ),
  mutation(
    'a lone node keeps what it was handed over after its time',
    'peers 6, 20',
    'seeds',
    LONE,
    'this.#undo(keys, next.owner);\n            this.#undo(keys, lease.owner);',
    '',
  ),
  mutation(
    'a clean-up that fails is an unhandled rejection',
    'peers 18',
    'seeds',
    QUORUM,
    'this.#nodes[index].release(keys, owner, 0n, quiet).catch(() => undefined);',
    'void this.#nodes[index].release(keys, owner, 0n, quiet);',
  ),
  mutation(
    'nodes whose outcome is unknown are not released',
    'peers 6, 20',
    'seeds',
    QUORUM,
    'for (const index of election.doubtful())\n            this.#undo(index, keys, owner, quiet);',
    '',
  ),
  mutation(
    'late grants of a lost attempt stay',
    'peers 6, 20',
    'seeds',
    QUORUM,
    "if (state === 'lost')\n                    this.#undo(index, keys, owner, quiet);",
    "if (state === 'lost')\n                    return;",
  ),
  mutation(
    'grants that come after the release stay',
    'peers 20, 21',
    'seeds',
    QUORUM,
    'else if (trail?.over === true)\n                    this.#lateGrant(trail, index, keys, owner);',
    '',
  ),
  mutation(
    'a partial attempt is left behind',
    'peers 2',
    'seeds',
    QUORUM,
    'await this.#withdraw(election, keys, owner, quiet);',
    ';',
  ),
  mutation(
    'what a cancelled caller wins is kept',
    'peers 12',
    'seeds',
    WAITER,
    'return this.#host.giveBack(won);',
    'return;',
  ),
  mutation(
    'subscriptions outlive the locks',
    'own',
    'seeds',
    WAKEUPS,
    'await Promise.all(open.map((subscriber) => subscriber.close().catch(() => undefined)));',
    'void open;',
  ),
  // Progress.
  mutation(
    'an empty script cache breaks the operation',
    'peers 22',
    'seeds',
    NODE,
    'if (isNoScript(error))',
    'if (isNoScript(error) && script.name === "")',
  ),
  mutation(
    'no deadline for silent nodes',
    'peers 1, 24',
    'seeds',
    ELECTION,
    'deadlines.start(this.#plan.timeoutMs, () => this.#timeUp());',
    'deadlines.start(1e9, () => this.#timeUp());',
  ),
  mutation(
    'no deadline for a silent lone node',
    'peers 1, 24',
    'seeds',
    LONE,
    'this.#options.timeoutMs(ttlMs), late);',
    '1e9, late);',
  ),
  mutation(
    'everyone waits for the slowest node',
    'peers 24',
    'seeds',
    ELECTION,
    'if (this.#alike.length >= this.#quorum)',
    'if (this.#alike.length >= this.#plan.nodes.length)',
  ),
  mutation(
    'a waiter does not try again once it listens',
    'peers 23',
    'seeds',
    WAITER,
    'if (armed)\n                        continue;',
    '',
  ),
  mutation(
    'who has given up goes on contending',
    'found by the simulator',
    'seeds',
    DESK,
    'if (!contest.isWanted())',
    'if (false)',
  ),
  mutation(
    'releases are not told',
    'own',
    'seeds',
    NODE,
    "const publish = quiet ? '' : ",
    "const publish = true ? '' : ",
  ),
  mutation(
    'failed attempts wake everyone, themselves among them',
    'peers 5, found by the simulator',
    'seeds',
    QUORUM,
    ' || election.failures.length > this.#nodes.length - this.#quorum',
    '',
  ),
]
