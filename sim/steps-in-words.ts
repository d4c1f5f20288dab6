import { STAMP_KEY } from '../src/engines/redis/keys.ts'
import { SHARED } from '../src/engines/redis/readers-lua.ts'
import { CURRENT, type Library } from './library.ts'
import type { StepInWords } from './network.ts'
import { ServerError, type Reply } from './redis.ts'

/** Its scripts by their hashes and by their texts. */
export class ScriptNames {
  readonly bySha: ReadonlyMap<string, string>
  readonly byText: ReadonlyMap<string, string>

  constructor({ scripts: { CONFIRM, EXTEND, HAND_OVER, INSPECT, RELEASE, READER } }: Library) {
    const all = [CONFIRM, EXTEND, HAND_OVER, INSPECT, RELEASE, ...Object.values(READER)]
    this.bySha = new Map(all.map(({ sha, name }) => [sha, name]))
    this.byText = new Map(all.map(({ text, name }) => [text, name]))
  }
}

const CURRENT_NAMES = new ScriptNames(CURRENT)

/** What a call of the engine is, step by step. `names`: those of the library that has made it. */
export function inWords(
  commands: readonly (readonly string[])[],
  nextId: () => number,
  names: ScriptNames = CURRENT_NAMES,
): readonly StepInWords[] {
  const [name = '', first = '', keys = '0', ...rest] = commands[0]!
  const step = (what: string, owner = '', former = ''): StepInWords => ({
    id: nextId(),
    what,
    owner: owner.replace(SHARED, ''),
    former: former.replace(SHARED, ''),
  })
  if (name !== 'EVALSHA' && name !== 'EVAL') return [step(`${name} ${first}`.slice(0, 40))]
  if (rest[0] === STAMP_KEY) return [step('stamp')]
  // The doctor's question: what this user may do.
  if (keys === '0') return [step('rights')]
  const args = rest.slice(Number(keys))
  // Shorter than any of the engine's: a script of somebody who locks by hand.
  if (name === 'EVAL' && args.length === 1) return [step('EVAL', args[0])]
  const what = (name === 'EVALSHA' ? names.bySha : names.byText).get(first) ?? 'acquire'
  const [owner = '', next = '', , other = ''] = args
  switch (what) {
    case 'inspect':
      return [step(what)]
    case 'extend':
      // A batch of extensions is many owners'.
      return [step(what, other)]
    case 'handOver':
      return [step(what, next, owner)]
    case 'acquire':
      if (args[4] === 'enqueue') return [step('enqueue', owner, other)]
      if (args[4] === 'over') return [step('handOver', next, owner)]
      return owner in TOGETHER ? together(args, step) : [step(what, owner)]
    default:
      return [step(what, owner)]
  }
}

/** By what the steps of a call of several begin; no owner is as short. */
const TOGETHER: Readonly<Record<string, string>> = { a: 'acquire', c: 'confirm', r: 'release', h: 'handOver' }

/** The steps of one call: see `TOGETHER` of the scripts. */
function together(args: readonly string[], step: (what: string, owner: string, former?: string) => StepInWords) {
  const steps: StepInWords[] = []
  for (let at = 0; at < args.length; at += Number(args[at + 2]) + 3) {
    const [owner = '', next = '', , old = '', fifth] = args.slice(at + 3, at + 3 + Number(args[at + 2]))
    const what = TOGETHER[args[at]!]
    if (what === undefined) throw new Error(`expected the name of a step, got ${args[at]} in ${args.join(' ')}`)
    if (what === 'acquire' && fifth === 'enqueue') steps.push(step(fifth, owner, old))
    else steps.push(what === 'handOver' ? step(what, next, owner) : step(what, owner))
  }
  return steps
}

/** What one of several steps was answered. */
export function partOf(replies: Reply | undefined, index: number): Reply {
  if (!Array.isArray(replies)) return replies ?? null
  const reply = (replies as readonly Reply[])[index] ?? null
  return Array.isArray(reply) && reply[0] === 'failed' ? new ServerError(String(reply[1])) : reply
}
