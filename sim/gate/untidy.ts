import { mutation, type Mutation } from './mutation.ts'

const ELECTIONS = 'src/engines/redis/elections.js'
const CLEANUP = 'src/engines/redis/cleanup.js'
const ELECTION = 'src/engines/redis/election.js'
const NODE = 'src/engines/redis/node.js'
const SINGLE_NODE = 'src/engines/redis/single-node.js'
const WAKEUPS = 'src/engines/redis/wakeups.js'
const WAITER = 'src/waiter.js'

/** Bugs that leave something behind, or keep someone waiting. */
export const UNTIDY: readonly Mutation[] = [
  // Cleaning up.
  mutation(
    'a release stops at the first message that it may not send',
    'own',
    'seeds',
    'src/engines/redis/scripts.js',
    "if holders[i] == ARGV[1] then redis.call('del', KEYS[i]) else ours = false end",
    `if holders[i] == ARGV[1] then
    redis.call('del', KEYS[i])
    if ARGV[4] ~= '' then redis.call(ARGV[4], ARGV[5 + (i - 1) / 2], ARGV[1]) end
  else ours = false end`,
  ),
  mutation(
    'the rest of a job has fractions of a millisecond',
    'own',
    'seeds',
    'src/keeper.js',
    'Math.ceil(Math.max(record.keepLeftMs(), leastMs))',
    'Math.max(record.keepLeftMs(), leastMs)',
  ),
  mutation(
    'locks that are closed between a grant and its admission admit it',
    'own',
    'seeds',
    'src/attempts.js',
    'plan.granted(acquired);\n            this.#lifetime.end();',
    'queueMicrotask(() => {\n                plan.granted(acquired);\n                this.#lifetime.end();\n            });',
  ),
  mutation(
    'where the stamp cannot be written, the scripts of all users are flushed',
    'own',
    'seeds',
    'src/engines/redis/voters/admission.js',
    'throw explained(error);',
    "void this.#client.run(['SCRIPT', 'FLUSH']);\n            throw explained(error);",
  ),
  mutation(
    'a single node keeps what it granted after its time',
    'peers 6, 20',
    'seeds',
    SINGLE_NODE,
    'if (!(cause instanceof NotSentError))\n                    this.#undo(keys, owner);',
    '',
  ),
  mutation(
    'a single node keeps what it was handed over after its time',
    'peers 6, 20',
    'seeds',
    SINGLE_NODE,
    'this.#undo(keys, next.owner);\n                this.#undo(keys, lease.owner);',
    '',
  ),
  mutation(
    'a clean-up that fails is an unhandled rejection',
    'peers 18',
    'seeds',
    CLEANUP,
    'this.#nodes[index].release(keys, owner, 0n, quiet).catch(() => undefined);',
    'void this.#nodes[index].release(keys, owner, 0n, quiet);',
  ),
  mutation(
    'nodes whose outcome is unknown are not released',
    'peers 6, 20',
    'seeds',
    CLEANUP,
    'for (const index of election.doubtful())\n            undo(index).catch(() => undefined);',
    '',
  ),
  mutation(
    'late grants of a lost attempt stay',
    'peers 6, 20',
    'seeds',
    ELECTIONS,
    'if (election.isLost)\n                    undo(index).catch(() => undefined);',
    'if (election.isLost)\n                    return;',
  ),
  mutation(
    'grants that come after the release stay',
    'peers 20, 21',
    'seeds',
    ELECTIONS,
    'else if (requests.over)\n                    cleanup.lateGrant(requests, index, keys, owner);',
    '',
  ),
  mutation(
    'a partial attempt is left behind',
    'peers 2',
    'seeds',
    ELECTIONS,
    'void cleanup.withdraw(election, undo).then(() => end.decided(undefined, election));',
    'end.decided(undefined, election);',
  ),
  mutation('what a cancelled caller wins is kept', 'peers 12', 'seeds', WAITER, 'holdings.giveBack(acquisition);', ''),
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
    'if (byText || !isNoScript(error))',
    'if (true)',
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
    'no deadline for a silent single node',
    'peers 1, 24',
    'seeds',
    SINGLE_NODE,
    'this.#options.deadlines.start(timeoutMs,',
    'this.#options.deadlines.start(1e9,',
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
    'releases are not told',
    'own',
    'seeds',
    NODE,
    "const publish = quiet ? '' : ",
    "const publish = true ? '' : ",
  ),
]
