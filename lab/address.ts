/** A scene as it stands in the fragment of an address: which one, with or without its remedy, what the reader did, and when one looks. */
export interface Scene {
  readonly name: string
  readonly remedied: boolean
  readonly actions: readonly Action[]
  readonly atMs: number
}

/** What a reader can do, and to what: a process, a node, or the line between them. */
export const FAULTS = {
  pause: 'p',
  crash: 'p',
  'jump-process': 'p',
  cut: 'pn',
  delay: 'pn',
  'lose-reply': 'pn',
  freeze: 'n',
  restart: 'n',
  forget: 'n',
  jump: 'n',
  evict: 'n',
  failover: 'n',
} as const

export interface Action {
  readonly kind: keyof typeof FAULTS
  readonly process: number
  readonly node: number
  readonly atMs: number
}

const MOST_ACTIONS = 40
const MOST_MACHINES = 9
const LONGEST_MS = 200_000

export function addressOf({ name, remedied, actions, atMs }: Scene): string {
  const done = actions.map(({ kind, process, node, atMs: when }) => {
    const target = FAULTS[kind].replace('p', String(process)).replace('n', `.${node}`)
    return `${kind}.${target.replace(/^\./, '')}.${when}`
  })
  const parts = [name, remedied ? 'with' : 'without', String(Math.round(atMs)), ...done]
  return `#${parts.join('/')}`
}

/** Reads an address that anybody may have written: what is not understood is left out. */
export function sceneOf(fragment: string, names: readonly string[]): Scene {
  const [name = '', remedy = '', at = '', ...rest] = fragment.replace(/^#/, '').split('/')
  return {
    name: names.includes(name) ? name : names[0]!,
    remedied: remedy === 'with',
    atMs: numberOf(at, LONGEST_MS) ?? 0,
    actions: rest.slice(0, MOST_ACTIONS).flatMap((text) => actionOf(text) ?? []),
  }
}

function actionOf(text: string): Action | undefined {
  const [kind = '', ...numbers] = text.split('.')
  if (!Object.hasOwn(FAULTS, kind)) return undefined
  const fault = kind as Action['kind']
  const on = FAULTS[fault]
  const process = on.startsWith('p') ? numberOf(numbers.shift(), MOST_MACHINES - 1) : 0
  const node = on.endsWith('n') ? numberOf(numbers.shift(), MOST_MACHINES - 1) : 0
  const atMs = numberOf(numbers.shift(), LONGEST_MS)
  if (process === undefined || node === undefined || atMs === undefined || numbers.length > 0) return undefined
  return { kind: fault, process, node, atMs }
}

function numberOf(text: string | undefined, most: number): number | undefined {
  return text !== undefined && /^\d{1,6}$/.test(text) && Number(text) <= most ? Number(text) : undefined
}
