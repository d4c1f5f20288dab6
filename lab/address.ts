import { KINDS, usualMs, type Action, type Kind } from './actions.ts'
import { SCENES, type Prepared } from './scenes.ts'

/** A scene as it stands in the fragment of an address: which one, its seed, what is left out, what happens, and when one looks. */
export interface Scene {
  readonly name: string
  readonly seed: number
  readonly off: readonly Prepared['off'][number][]
  readonly actions: readonly Action[]
  readonly atMs: number
}

const MOST_ACTIONS = 40
const MOST_MACHINES = 9
const LONGEST_MS = 200_000
const MOST_SEEDS = 999_999

export function sceneOf(name: string): Scene {
  const { off, actions } = SCENES.find((scene) => scene.name === name) ?? SCENES[0]!
  return { name, seed: 0, off, actions, atMs: 0 }
}

/** `#NAME`, or `#NAME.SEED/all/MS/ACTION/…` with every action; `no-guard,quorum` in place of `all`: without these. */
export function addressOf({ name, seed, off, actions, atMs }: Scene): string {
  const done = actions.map(({ kind, process, node, atMs: when, forMs }) => {
    const { on } = KINDS[kind]
    const numbers = [on.startsWith('p') ? process : [], on.endsWith('n') ? node : [], when].flat()
    return [kind, ...numbers, ...(forMs === usualMs(kind) ? [] : [forMs])].join('.')
  })
  const without = off.length === 0 ? 'all' : `no-${off.join(',')}`
  return `#${[seed === 0 ? name : `${name}.${seed}`, without, String(Math.round(atMs)), ...done].join('/')}`
}

/** Reads an address that anybody may have written: what is not understood is left out. */
export function readAddress(fragment: string): Scene {
  return reading(fragment).scene
}

/** The run of an address; of each part that is not understood, that it is not, and what is shown instead. */
export function reading(fragment: string): { readonly scene: Scene; readonly unknown: readonly string[] } {
  const [names = '', without, at, ...rest] = fragment.replace(/^#/, '').split('/')
  const [name, ...seeds] = names.split('.')
  const prepared = SCENES.find((scene) => scene.name === name)
  if (prepared === undefined) {
    const scene = sceneOf(SCENES[0]!.name)
    const unknown = names === '' ? [] : [`“${names}” is no scene: “${SCENES[0]!.title}” is shown instead`]
    return { scene, unknown }
  }
  const unknown: string[] = []
  const seed = prepared.setting === undefined ? undefined : numberOf(seeds.join('.'), MOST_SEEDS)
  if (seeds.length > 0 && seed === undefined) {
    unknown.push(`“${seeds.join('.')}” is no seed of this scene: it is as prepared`)
  }
  const prepares = sceneOf(prepared.name)
  if (without === undefined) return { scene: { ...prepares, seed: seed ?? 0 }, unknown }
  const left = without === 'all' ? [] : without.replace(/^no-/, '').split(',')
  for (const one of left) {
    if (!(prepared.switches as readonly string[]).includes(one))
      unknown.push(`“${one}” is no remedy of this scene: nothing is switched off for it`)
  }
  const atMs = numberOf(at, LONGEST_MS)
  if (at !== undefined && atMs === undefined) unknown.push(`“${at}” is no moment: the beginning is shown`)
  const known = rest.map((text) => [text, actionOf(text)] as const)
  for (const [text, action] of known) if (action === undefined) unknown.push(`“${text}” is left out`)
  const actions = known.flatMap(([, action]) => action ?? [])
  if (actions.length > MOST_ACTIONS) unknown.push(`only the first ${MOST_ACTIONS} faults are in it`)
  const off = prepared.switches.filter((one) => left.includes(one))
  const scene = { ...prepares, seed: seed ?? 0, off, atMs: atMs ?? 0, actions: actions.slice(0, MOST_ACTIONS) }
  return { scene, unknown }
}

/** Names a scene that has something to show, and no moment of it. */
export function playsItself(fragment: string): boolean {
  const name = fragment.replace(/^#/, '')
  return SCENES.some((scene) => scene.name === name && scene.group !== 'open')
}

function actionOf(text: string): Action | undefined {
  const [kind = '', ...numbers] = text.split('.')
  if (!Object.hasOwn(KINDS, kind)) return undefined
  const what = kind as Kind
  const { on } = KINDS[what]
  const process = on.startsWith('p') ? numberOf(numbers.shift(), MOST_MACHINES - 1) : 0
  const node = on.endsWith('n') ? numberOf(numbers.shift(), MOST_MACHINES - 1) : 0
  const atMs = numberOf(numbers.shift(), LONGEST_MS)
  const forMs = numbers.length > 0 && usualMs(what) > 0 ? numberOf(numbers.shift(), LONGEST_MS) : usualMs(what)
  if (process === undefined || node === undefined || atMs === undefined || forMs === undefined) return undefined
  return numbers.length > 0 ? undefined : { kind: what, process, node, atMs, forMs }
}

function numberOf(text: string | undefined, most: number): number | undefined {
  return text !== undefined && /^\d{1,6}$/.test(text) && Number(text) <= most ? Number(text) : undefined
}
