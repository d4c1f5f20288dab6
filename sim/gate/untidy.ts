import { mutation, type Mutation } from './mutation.ts'

const QUORUM = 'src/engines/redis/quorum.js'
const ELECTION = 'src/engines/redis/election.js'
const NODE = 'src/engines/redis/node.js'
const LONE = 'src/engines/redis/lone.js'
const WAKEUPS = 'src/engines/redis/wakeups.js'
const WAITER = 'src/waiter.js'

/** Bugs that leave something behind, or keep someone waiting. */
export const UNTIDY: readonly Mutation[] = [
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
    'if (election.isLost)\n                    this.#undo(index, keys, owner, quiet);',
    'if (election.isLost)\n                    return;',
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
