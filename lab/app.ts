import { timeline, type Line } from '../sim/timeline.ts'
import { addressOf, FAULTS, sceneOf, type Action, type Scene } from './address.ts'
import { clockTime, Picture } from './draw.ts'
import { hashOf, play, SCENES, until, verdicts, type Run } from './play.ts'
import { Scale } from './scale.ts'
import { ACTIONS, meaningOf, PROMISES, sentenceOf } from './words.ts'

/** Places of the picture that go by in a second. */
const PACE = 9

// eslint-disable-next-line typescript/no-unnecessary-type-parameters -- the page has it, and of that kind
function by<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T
}

function made<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text = '',
  more: Partial<HTMLElementTagNameMap[K]> = {},
): HTMLElementTagNameMap[K] {
  return Object.assign(document.createElement(tag), { textContent: text }, more)
}

const names = SCENES.map(({ name }) => name)
const scrub = by<HTMLInputElement>('scrub')
const faults = by<HTMLSelectElement>('fault')

let scene: Scene = sceneOf(location.hash, names)
let run: Run
let scale: Scale
let picture: Picture
let story: readonly Line[] = []
let nowMs = 0
let isPlaying = false
let playedAt = 0
let shownStep = -2
/** The last call of `open`: an earlier one that is done later is not shown. */
let opened = 0

/** Plays the scene anew, and looks at it at the moment that it names. */
async function open(next: Scene): Promise<void> {
  const call = ++opened
  scene = next
  const played = await play(scene)
  if (call !== opened) return
  run = played
  scale = new Scale(run.history)
  picture = new Picture(by('picture'), run, scale)
  story = timeline(run.history).filter(({ at }) => at <= scale.endMs)
  by<HTMLSelectElement>('scene').value = scene.name
  for (const radio of document.querySelectorAll<HTMLInputElement>('[name=remedy]'))
    radio.checked = (radio.value === 'with') === scene.remedied
  const { title, assumption, without, remedy } = run.scenario
  by('about').textContent =
    `${title.slice(0, 1).toUpperCase()}${title.slice(1)}. Assumption broken: ${assumption}. Here: ${scene.remedied ? remedy : without}.`
  by('story').replaceChildren(...story.map(storyItem))
  by('done').replaceChildren(...scene.actions.map(doneItem))
  options(by('process'), run.processes)
  options(by('node'), run.nodes)
  offer()
  document.body.dataset['history'] = hashOf(run.history)
  document.body.dataset['damage'] = run.damage ?? ''
  shownStep = -2
  look(Math.min(scene.atMs, scale.endMs))
}

function options(select: HTMLSelectElement, values: readonly string[]): void {
  const { value } = select
  select.replaceChildren(...values.map((text, index) => made('option', text, { value: String(index) })))
  if (Number(value) < values.length && value !== '') select.value = value
}

function offer(): void {
  for (const option of faults.options) option.hidden = option.disabled = option.value === 'failover' && !run.hasReplica
  const on = FAULTS[faults.value as Action['kind']]
  by('of-process').hidden = !on.startsWith('p')
  by('of-node').hidden = !on.endsWith('n')
}

function storyItem(line: Line): HTMLLIElement {
  const button = made('button', '', { type: 'button' })
  button.append(made('time', clockTime(line.at)), made('span', sentenceOf(line)))
  button.addEventListener('click', () => {
    stop()
    look(line.at)
  })
  const item = made('li')
  item.append(button)
  return item
}

function doneItem(action: Action, index: number): HTMLLIElement {
  const on = FAULTS[action.kind]
  const what = [on.startsWith('p') ? `p${action.process}` : '', on.endsWith('n') ? `n${action.node}` : '']
  const item = made('li', `${clockTime(action.atMs)} · ${what.filter(Boolean).join('–')}: ${ACTIONS[action.kind]}`)
  const undo = made('button', 'undo', { type: 'button' })
  undo.addEventListener('click', () => {
    change({ actions: scene.actions.filter((_, at) => at !== index), atMs: nowMs })
  })
  item.append(undo)
  return item
}

/** Shows the run as it stands at a moment. */
function look(ms: number): void {
  nowMs = Math.max(0, Math.min(ms, scale.endMs))
  picture.draw(nowMs)
  scrub.value = String(Math.round((scale.placeOf(nowMs) / scale.length) * 1000))
  scrub.setAttribute('aria-valuetext', clockTime(nowMs))
  by('now').textContent = `${clockTime(nowMs)} of ${clockTime(scale.endMs)}`
  const step = story.findLastIndex(({ at }) => at <= nowMs)
  if (step === shownStep) return
  shownStep = step
  const line = story[step]
  by('step').textContent =
    line === undefined ? 'Nothing has happened yet. Press Play, or step.' : `${sentenceOf(line)} ${meaningOf(line)}`
  for (const [index, item] of [...by('story').children].entries()) {
    const button = item.firstElementChild!
    button.classList.toggle('later', index > step)
    if (index === step) button.setAttribute('aria-current', 'step')
    else button.removeAttribute('aria-current')
  }
  showVerdicts()
}

const SIGNS = { true: '✓', false: '✗', unknown: '·' } as const

function showVerdicts(): void {
  const past = until(run.history, nowMs)
  by('verdicts').replaceChildren(
    ...verdicts(past).map((word) => {
      const item = made('li', '', { className: word.verdict })
      item.append(made('b', SIGNS[word.verdict]), made('span', PROMISES[word.checker] ?? word.checker))
      if (word.verdict !== 'true') item.append(made('small', word.why))
      item.dataset['checker'] = word.checker
      return item
    }),
  )
  const tokens = [...new Set(run.history.of('holds').map(({ token }) => token))].sort((a, b) => a - b)
  by('ledger').replaceChildren(
    ...past.of('write').map(({ at, process, token, value, base, accepted }) => {
      const isLost = accepted && value !== base + 1
      const came = !accepted
        ? 'refused: a newer holder has been here; one of two updates would have been lost'
        : isLost
          ? `accepted over ${base}: an update is lost`
          : 'accepted'
      const row = made('tr')
      row.append(made('td', clockTime(at)), made('td', process), made('td', String(tokens.indexOf(token) + 1)))
      row.append(
        made('td', String(value)),
        made('td', came, { className: isLost ? 'lost' : accepted ? '' : 'refused' }),
      )
      return row
    }),
  )
}

function change(part: Partial<Scene>): void {
  stop()
  const next = { ...scene, ...part }
  history.replaceState(null, '', addressOf(next))
  void open(next)
}

function start(): void {
  if (nowMs >= scale.endMs) look(0)
  isPlaying = true
  by('play').textContent = 'Stop'
  playedAt = performance.now()
  requestAnimationFrame(frame)
}

function stop(): void {
  isPlaying = false
  by('play').textContent = 'Play'
  if (scale !== undefined) history.replaceState(null, '', addressOf({ ...scene, atMs: nowMs }))
}

function frame(at: number): void {
  if (!isPlaying) return
  const seconds = Math.min(Math.max(at - playedAt, 0), 100) / 1000
  playedAt = at
  look(scale.msAt(scale.placeOf(nowMs) + seconds * PACE * Number(by<HTMLSelectElement>('speed').value)))
  if (nowMs >= scale.endMs) stop()
  else requestAnimationFrame(frame)
}

function stepTo(way: 'back' | 'next' | 'first' | 'last'): void {
  stop()
  const times = [0, ...story.map(({ at }) => at), scale.endMs]
  const to = {
    first: 0,
    last: scale.endMs,
    next: times.find((at) => at > nowMs + 0.001) ?? scale.endMs,
    back: times.findLast((at) => at < nowMs - 0.001) ?? 0,
  }
  look(to[way])
  stop()
}

function toggle(): void {
  if (isPlaying) stop()
  else start()
}

by('scene').replaceChildren(
  ...SCENES.map(({ name, title }) => made('option', name === 'free' ? `Free: ${title}` : title, { value: name })),
)
faults.replaceChildren(
  ...Object.entries(ACTIONS).map(([kind, text]) => {
    const on = { p: 'client', n: 'node', pn: 'line' }[FAULTS[kind as Action['kind']]]
    return made('option', `${on}: ${text}`, { value: kind })
  }),
)
// Nothing listens before there is something to look at.
await open(scene)

by('scene').addEventListener('change', () => {
  change({ name: by<HTMLSelectElement>('scene').value, remedied: false, actions: [], atMs: 0 })
})
for (const radio of document.querySelectorAll<HTMLInputElement>('[name=remedy]'))
  radio.addEventListener('change', () => change({ remedied: radio.value === 'with', atMs: nowMs }))
for (const way of ['first', 'back', 'next', 'last'] as const) by(way).addEventListener('click', () => stepTo(way))
by('play').addEventListener('click', toggle)
scrub.addEventListener('input', () => {
  isPlaying = false
  by('play').textContent = 'Play'
  look(scale.msAt((Number(scrub.value) / 1000) * scale.length))
})
scrub.addEventListener('change', stop)
faults.addEventListener('change', offer)
by('break').addEventListener('submit', (event) => {
  event.preventDefault()
  const action: Action = {
    kind: faults.value as Action['kind'],
    process: Number(by<HTMLSelectElement>('process').value),
    node: Number(by<HTMLSelectElement>('node').value),
    atMs: Math.ceil(nowMs),
  }
  change({ actions: [...scene.actions, action], atMs: action.atMs })
})
document.addEventListener('keydown', (event) => {
  const target = event.target as HTMLElement
  if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT)$/.test(target.tagName)) return
  const way = { ArrowLeft: 'back', ArrowRight: 'next', Home: 'first', End: 'last' }[event.key]
  if (way !== undefined) stepTo(way as 'back')
  else if (event.key === ' ' && target.tagName !== 'BUTTON') toggle()
  else return
  event.preventDefault()
})
addEventListener('hashchange', () => {
  isPlaying = false
  void open(sceneOf(location.hash, names))
})
addEventListener('resize', () => look(nowMs))
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => look(nowMs))
