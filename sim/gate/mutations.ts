import { DRIVER_BUGS } from './drivers.ts'
import { KIND_BUGS } from './kinds.ts'
import { LINE_BUGS } from './line.ts'
import { MOVE_BUGS } from './moves.ts'
import type { Mutation } from './mutation.ts'
import { OBJECT_BUGS } from './objects.ts'
import { READER_BUGS } from './readers.ts'
import { TESTED_BUGS } from './tested.ts'
import { UNFIT_VOTERS } from './unfit-voters.ts'
import { UNSAFE } from './unsafe.ts'
import { UNTIDY } from './untidy.ts'

export const MUTATIONS: readonly Mutation[] = [
  ...UNSAFE,
  ...UNFIT_VOTERS,
  ...UNTIDY,
  ...LINE_BUGS,
  ...READER_BUGS,
  ...KIND_BUGS,
  ...OBJECT_BUGS,
  ...MOVE_BUGS,
  ...DRIVER_BUGS,
  ...TESTED_BUGS,
]
