import type { Mutation } from './mutation.ts'
import { UNSAFE } from './unsafe.ts'
import { UNTIDY } from './untidy.ts'

export const MUTATIONS: readonly Mutation[] = [...UNSAFE, ...UNTIDY]
