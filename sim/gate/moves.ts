import { mutation, type Mutation } from './mutation.ts'

/** Bugs that show where a lease is adopted while its holder goes on. */
export const MOVE_BUGS: readonly Mutation[] = [
  mutation(
    'an adoption whose outcome is unknown releases its old owner',
    'own',
    'kinds',
    'src/engines/redis/elections.js',
    'if (!isVote || !election.isLost || isSplit(election))',
    '',
  ),
]
