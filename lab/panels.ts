import { KINDS, usualMs, type Action, type Kind } from './actions.ts'
import type { Scene } from './address.ts'
import { by, item, made, refill } from './page.ts'
import type { Run } from './play.ts'
import { SCENES, type Prepared } from './scenes.ts'
import { clockTime, named, plain, ranks, shortName, type Step } from './tell.ts'
import { until, verdicts } from './verdicts.ts'
import { ACTIONS, GROUPS, PROMISES, REMEDIES, wordsOf } from './words.ts'

/** The list of scenes, once for wide windows and once for narrow ones. */
export function showScenes(chosen: (name: string) => void): void {
  const select = by<HTMLSelectElement>('scene')
  for (const [group, title] of Object.entries(GROUPS) as [Prepared['group'], string][]) {
    const scenes = SCENES.filter((scene) => scene.group === group)
    const options = made('optgroup', '', { label: title })
    options.append(...scenes.map((scene) => made('option', scene.title, { value: scene.name })))
    select.append(options)
    const list = made('ul')
    for (const scene of scenes) {
      const link = made('a', scene.title, { href: `#${scene.name}` })
      link.dataset['scene'] = scene.name
      list.append(item(link))
    }
    const part = made('details', '', { open: group !== 'catalogue' })
    part.append(made('summary', title), list)
    by('scenes').append(part)
  }
  select.addEventListener('change', () => chosen(select.value))
}

/** That this is not the run of the address, or not all of it. */
export function showUnknown(unknown: readonly string[]): void {
  by('unknown').hidden = unknown.length === 0
  by('unknown').textContent =
    unknown.length === 0 ? '' : `The lab does not know all of this address: ${unknown.join('; ')}.`
}

export function markScene(name: string): void {
  by<HTMLSelectElement>('scene').value = name
  for (const link of document.querySelectorAll<HTMLAnchorElement>('#scenes a')) {
    if (link.dataset['scene'] !== name) link.removeAttribute('aria-current')
    else {
      link.setAttribute('aria-current', 'page')
      link.closest('details')!.open = true
    }
  }
}

export function showRemedies(
  { switches }: Prepared,
  scene: Scene,
  turned: (name: Scene['off'][number], isOn: boolean) => void,
): void {
  refill(
    by('remedies'),
    ...switches.map((name) => {
      const isOn = !scene.off.includes(name)
      const box = made('input', '', { type: 'checkbox', checked: isOn, value: name })
      box.setAttribute('role', 'switch')
      box.addEventListener('change', () => turned(name, box.checked))
      const [title, about] = REMEDIES[name]
      const label = made('label')
      const words = made('span')
      words.append(made('b', title), made('small', about))
      label.append(box, words)
      const why = playsNoPart(name, scene.off)
      label.classList.toggle('idle', why !== undefined)
      if (why !== undefined) words.append(made('small', why))
      return item(label)
    }),
  )
}

/** A remedy that makes no difference as long as another one is off. */
function playsNoPart(name: Prepared['off'][number], off: Scene['off']): string | undefined {
  if (off.includes('protocol') && ['sit-out', 'tokens', 'guard'].includes(name))
    return 'makes no difference to a lock written by hand'
  if (name === 'guard' && off.includes('tokens')) return 'has nothing to compare without tokens'
  if (name === 'sit-out' && off.includes('quorum')) return 'is of nodes that vote'
  return undefined
}

/** The form in which a machine is chosen, and what happens to it. */
export function nemesis(
  run: Run,
  target: string,
  chosen: (machine: string) => void,
  doIt: (kind: Kind, where: Pick<Action, 'process' | 'node' | 'forMs'>) => void,
): void {
  const isClient = target.startsWith('p')
  refill(
    by('machine-choice'),
    ...[...run.processes, ...run.nodes].map((name) => {
      const radio = made('input', '', { type: 'radio', name: 'target', value: name, checked: name === target })
      radio.addEventListener('change', () => chosen(name))
      const label = made('label')
      label.append(radio, made('span', capital(shortName(name))))
      return label
    }),
  )
  by('line').hidden = !isClient
  const node = by<HTMLSelectElement>('node')
  const { value } = node
  node.replaceChildren(...run.nodes.map((name, index) => made('option', named(name), { value: String(index) })))
  if (Number(value) < run.nodes.length && value !== '') node.value = value
  const index = Number(target.slice(1))
  const button = (kind: Kind): HTMLButtonElement => {
    const one = made('button', ACTIONS[kind], { type: 'button', value: kind })
    one.addEventListener('click', () => {
      const chosenMs = Number(by<HTMLSelectElement>('for').value)
      const forMs = usualMs(kind) > 0 && chosenMs > 0 ? chosenMs : usualMs(kind)
      doIt(kind, isClient ? { process: index, node: Number(node.value), forMs } : { process: 0, node: index, forMs })
    })
    return one
  }
  refill(by('of-machine'), ...kindsOn(isClient ? 'p' : 'n').map(button))
  refill(by('of-line'), ...kindsOn('pn').map(button))
}

function kindsOn(what: 'p' | 'n' | 'pn'): Kind[] {
  return (Object.keys(KINDS) as Kind[]).filter((kind) => KINDS[kind].on === what)
}

export function showDone(actions: readonly Action[], undone: (action: Action) => void): void {
  by('done-title').hidden = actions.length === 0
  by('done').replaceChildren(
    ...actions.map((action) => {
      const undo = made('button', 'undo', { type: 'button', className: 'link' })
      undo.setAttribute('aria-label', `undo: ${wordsOf(action)}`)
      undo.addEventListener('click', () => undone(action))
      return item(made('time', clockTime(action.atMs)), made('span', wordsOf(action)), undo)
    }),
  )
}

export function showStory(steps: readonly Step[], chosen: (step: Step) => void): void {
  by('story').replaceChildren(
    ...steps.map((step) => {
      const button = made('button', '', { type: 'button', className: step.weight })
      button.append(made('time', clockTime(step.at)), made('span', step.text))
      button.addEventListener('click', () => chosen(step))
      return item(button)
    }),
  )
}

export function markStep(steps: readonly Step[], index: number, isFollowed: boolean): void {
  const step = steps[index]
  by('step').textContent = step?.text ?? 'Nothing has happened yet.'
  by('meaning').textContent = step?.meaning ?? 'Play it, or go step by step.'
  by('telling').dataset['weight'] = step?.weight ?? ''
  const list = by('story')
  for (const [at, { firstElementChild }] of [...list.children].entries()) {
    firstElementChild!.classList.toggle('later', at > index)
    if (at !== index) firstElementChild!.removeAttribute('aria-current')
    else firstElementChild!.setAttribute('aria-current', 'step')
  }
  const current = list.children[index] as HTMLElement | undefined
  if (!isFollowed || current === undefined) return
  // Within the list alone: the page stays where it is.
  const top = current.offsetTop - list.offsetTop
  if (top < list.scrollTop || top + current.offsetHeight > list.scrollTop + list.clientHeight)
    list.scrollTop = top - list.clientHeight / 2
}

const SIGNS = { true: '✓', false: '✗', unknown: '·', void: '!' } as const
const IN_WORDS = {
  true: 'true so far',
  false: 'broken',
  unknown: 'nothing to say',
  void: 'not so, and not promised any more',
} as const

export function showVerdicts(run: Run, nowMs: number): void {
  const past = until(run.history, nowMs)
  by('verdicts').replaceChildren(
    ...verdicts(past).map(({ checker, verdict, ...more }) => {
      // The checkers say so of what an assumption was broken for.
      const word = verdict === 'unknown' && 'why' in more && more.why.includes('; before, ') ? 'void' : verdict
      const sign = made('b', SIGNS[word])
      sign.setAttribute('aria-hidden', 'true')
      const words = made('span', PROMISES[checker] ?? checker)
      words.append(made('i', ` (${IN_WORDS[word]})`))
      const li = item(sign, words)
      li.className = word
      if ('why' in more) li.append(made('small', plain(more.why)))
      li.dataset['checker'] = checker
      return li
    }),
  )
  const rank = ranks(run.history)
  by('ledger').replaceChildren(
    ...past.of('write').map(({ at, process, token, value, base, accepted }) => {
      const isLost = accepted && value !== base + 1
      const [came, kind] = !accepted
        ? [`refused: over ${base} it would have lost an update`, 'refused']
        : isLost
          ? [`accepted over ${base}: an update is lost`, 'lost']
          : ['accepted', '']
      const row = made('tr', '', { className: kind })
      for (const text of [clockTime(at), named(process), rank(token), String(value), came]) row.append(made('td', text))
      return row
    }),
  )
}

/** What became of the whole run, once it is over; and what would have helped, if that is off. */
export function showOutcome(
  { damage, prepared }: Run,
  isOver: boolean,
  off: Scene['off'],
  again: (remedy: Scene['off'][number]) => void,
): void {
  const outcome = by('outcome')
  outcome.className = !isOver ? 'open' : damage === undefined ? 'well' : 'damage'
  outcome.textContent = !isOver ? '' : damage === undefined ? 'Nothing was lost.' : `In the end: ${plain(damage)}.`
  const helpful = isOver && damage !== undefined ? prepared.remedies.filter((name) => off.includes(name)) : []
  by('again-with').hidden = helpful.length === 0
  by('again-with').replaceChildren(
    'Play it again with',
    ...helpful.map((name) => {
      const button = made('button', REMEDIES[name][0], { type: 'button' })
      button.addEventListener('click', () => again(name))
      return button
    }),
  )
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}
