import { sha1 } from '../../src/engines/redis/sha1.ts'
import { Latest } from '../../src/latest.ts'
import { compile } from './interpret.ts'

export interface Program {
  readonly text: string
  readonly run: ReturnType<typeof compile>
}

/** Texts seldom change, but for a comment at their beginning: each is compiled once for all servers. */
const compiled = new Map<string, Program>()

export function programOf(text: string): Program {
  const essence = text.replace(/^--.*\n/, '')
  let program = compiled.get(essence)
  if (program === undefined) {
    program = { text: essence, run: compile(essence) }
    compiled.set(essence, program)
  }
  return program
}

/** An exploration has few epochs, each with a script of its own; a run of the simulator makes new ones all the time. */
const shas = new Latest<string>(256)

export function shaOf(text: string): string {
  const known = shas.get(text)
  if (known !== undefined) return known
  const sha = sha1(text)
  shas.set(text, sha)
  return sha
}
