import { mutation, type Mutation } from './mutation.ts'

/** Bugs of the guard of objects. */
export const OBJECT_BUGS: readonly Mutation[] = [
  mutation(
    'a repeated PUT is taken for the write of another',
    'found by attacks: I',
    'objects',
    'src/guards/cas.js',
    'if (last !== undefined && writes.includes(last.id))\n                return last.value;',
    '',
  ),
  mutation(
    'a write of objects does not look at the token',
    'own',
    'objects',
    'src/guards/cas.js',
    'if (!passes(lease, seen, from))',
    'if (false)',
  ),
]
