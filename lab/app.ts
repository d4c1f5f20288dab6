import { action, drawActions, type Kind } from './actions.ts'
import { addressOf, playsItself, reading, sceneOf, type Scene } from './address.ts'
import { Picture } from './draw.ts'
import { by, item, made } from './page.ts'
import {
  markScene,
  markStep,
  nemesis,
  showDone,
  showOutcome,
  showRemedies,
  showScenes,
  showStory,
  showUnknown,
  showVerdicts,
} from './panels.ts'
import { hashOf, play, type Run } from './play.ts'
import { Scale } from './scale.ts'
import { clockTime, named, shortName, story, type Step } from './tell.ts'

/** Places of the picture that go by in a second; more of them where a scene is long. */
const PACE = 8
const LONGEST_S = 45

/** The clock and the slider move this often while it plays. To lay them out in every frame takes as long as to draw the picture. */
const TOLD_EVERY_MS = 100

/** Windows up to this width have the form below the picture, as in the style sheet. */
const ONE_COLUMN = 900

const scrub = by<HTMLInputElement>('scrub')
const seed = by<HTMLInputElement>('seed')
const canvas = by<HTMLCanvasElement>('picture')

let scene: Scene
let run: Run
let scale: Scale
let picture: Picture
let steps: readonly Step[] = []
let target = 'p0'
let nowMs = 0
let isPlaying = false
let playedAt = 0
let toldAt = 0
let shownStep = -2
let shownOver: boolean | undefined
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
  picture = new Picture(canvas, run, scale)
  steps = story(run.history).filter(({ at }) => at <= scale.endMs)
  if (![...run.processes, ...run.nodes].includes(target)) target = 'p0'
  const { prepared } = run
  markScene(scene.name)
  by('title').textContent = prepared.title
  by('about').textContent = named(prepared.about)
  showMachines()
  // What a reader does adds to `scene`, of which the run may still be under way, and not to what is shown.
  showRemedies(prepared, scene, (name, isOn) => {
    const off = prepared.switches.filter((one) => (one === name ? !isOn : scene.off.includes(one)))
    change({ off, atMs: nowMs })
  })
  aim(target)
  showDone(scene.actions, (undone) => change({ actions: scene.actions.filter((one) => one !== undone), atMs: nowMs }))
  showStory(steps, ({ at }) => {
    stop()
    look(at)
    remember()
  })
  by('seeds').hidden = prepared.setting === undefined
  seed.value = String(scene.seed)
  document.body.dataset['history'] = hashOf(run.history)
  document.body.dataset['damage'] = run.damage ?? ''
  shownStep = -2
  shownOver = undefined
  look(Math.min(scene.atMs, scale.endMs))
}

function aim(name: string): void {
  target = name
  nemesis(run, name, aim, (kind: Kind, where) => {
    const done = action(kind, Math.ceil(nowMs), where)
    change({ actions: [...scene.actions, done], atMs: done.atMs }, true)
    // Where the form is below the picture, what it does is out of sight.
    if (innerWidth <= ONE_COLUMN) by('stage').scrollIntoView()
  })
}

function showMachines(): void {
  fit()
  by('machines').replaceChildren(
    ...picture.lanes.names.map((name) => {
      if (name === 'store') return item(made('span', 'Store'))
      const button = made('button', '', { type: 'button', title: `Break ${shortName(name)}` })
      button.append(made('i', name.startsWith('p') ? 'client ' : 'node '), named(name).replace('node ', ''))
      button.dataset['machine'] = name
      button.addEventListener('click', () => {
        aim(name)
        by('break')
          .querySelector<HTMLInputElement>(`[value="${name}"]`)!
          .focus({ preventScroll: innerWidth > 1100 })
      })
      return item(button)
    }),
  )
}

function fit(): void {
  by('machines').style.setProperty('--lane', `${picture.fit()}px`)
}

/** Shows the run as it stands at a moment. */
function look(ms: number): void {
  nowMs = Math.max(0, Math.min(ms, scale.endMs))
  picture.draw(nowMs)
  if (!isPlaying || playedAt - toldAt >= TOLD_EVERY_MS) showTime()
  const isOver = nowMs >= scale.endMs
  if (isOver !== shownOver) {
    shownOver = isOver
    showOutcome(run, isOver, scene.off, (remedy) =>
      show({ ...scene, off: scene.off.filter((one) => one !== remedy), atMs: 0 }, true),
    )
  }
  const step = steps.findLastIndex(({ at }) => at <= nowMs)
  if (step === shownStep) return
  shownStep = step
  markStep(steps, step, true)
  showVerdicts(run, nowMs)
}

function showTime(): void {
  toldAt = playedAt
  scrub.value = String(Math.round((scale.placeOf(nowMs) / scale.length) * 1000))
  scrub.setAttribute('aria-valuetext', clockTime(nowMs))
  by('now').textContent = `${clockTime(nowMs)} of ${clockTime(scale.endMs)}`
}

function remember(): void {
  history.replaceState(null, '', addressOf({ ...scene, atMs: nowMs }))
}

/** Another run of it. What plays goes on playing, if it is to. */
function change(part: Partial<Scene>, goesOn = false): void {
  show({ ...scene, ...part }, isPlaying && goesOn)
}

function show(next: Scene, plays: boolean): void {
  stop()
  showUnknown([])
  history.replaceState(null, '', addressOf(next))
  void open(next).then(() => (plays ? start() : undefined))
}

function start(): void {
  if (isPlaying) return
  if (nowMs >= scale.endMs) look(0)
  isPlaying = true
  by('play').textContent = 'Stop'
  // A screen reader reads out each step that its user takes, and not all that goes by.
  by('telling').ariaLive = 'off'
  playedAt = performance.now()
  requestAnimationFrame(frame)
}

function stop(): void {
  if (isPlaying) showTime()
  isPlaying = false
  by('play').textContent = 'Play'
  by('telling').ariaLive = 'polite'
}

function frame(at: number): void {
  if (!isPlaying) return
  const seconds = Math.min(Math.max(at - playedAt, 0), 100) / 1000
  playedAt = at
  const pace = Math.max(PACE, scale.length / LONGEST_S) * Number(by<HTMLSelectElement>('speed').value)
  look(scale.msAt(scale.placeOf(nowMs) + seconds * pace))
  if (nowMs < scale.endMs) return void requestAnimationFrame(frame)
  stop()
  remember()
}

function stepTo(way: 'back' | 'next' | 'first' | 'last'): void {
  stop()
  const times = [0, ...steps.map(({ at }) => at), scale.endMs]
  const to = {
    first: 0,
    last: scale.endMs,
    next: times.find((at) => at > nowMs + 0.001) ?? scale.endMs,
    back: times.findLast((at) => at < nowMs - 0.001) ?? 0,
  }
  look(to[way])
  remember()
}

function toggle(): void {
  if (!isPlaying) return start()
  stop()
  remember()
}

/** As a reader wrote it; what is no such text, as it stands there. */
function decoded(hash: string): string {
  try {
    return decodeURIComponent(hash)
  } catch {
    return hash
  }
}

/** What the address names: a scene without a moment plays itself, if motion is welcome. */
async function visit(): Promise<void> {
  stop()
  const { hash } = location
  const { scene, unknown } = reading(decoded(hash))
  showUnknown(unknown)
  await open(scene)
  if (location.hash === hash && playsItself(hash) && !matchMedia('(prefers-reduced-motion: reduce)').matches) start()
}

showScenes((name) => {
  history.pushState(null, '', `#${name}`)
  void visit()
})
// Nothing listens before there is something to look at.
await visit()
performance.mark('shown')

for (const way of ['first', 'back', 'next', 'last'] as const) by(way).addEventListener('click', () => stepTo(way))
by('play').addEventListener('click', toggle)
scrub.addEventListener('input', () => {
  stop()
  look(scale.msAt((Number(scrub.value) / 1000) * scale.length))
})
scrub.addEventListener('change', remember)
canvas.addEventListener('click', ({ offsetX }) => {
  stop()
  look(picture.momentAt(offsetX))
  remember()
})
seed.addEventListener('change', () =>
  change({ seed: Math.trunc(Math.max(0, Math.min(999_999, Number(seed.value) || 0))), atMs: 0 }),
)
by('dice').addEventListener('click', () => {
  const next = (scene.seed + 1) % 1_000_000
  const { endMs } = run.prepared.setting!
  change({ seed: next, actions: drawActions(next, run.processes.length, run.nodes.length, endMs), atMs: 0 })
})
by('again').addEventListener('click', () => change({ ...sceneOf(scene.name) }))
by('copy').addEventListener('click', () => {
  remember()
  void navigator.clipboard.writeText(location.href).then(() => (by('copy').textContent = 'copied'))
})
document.addEventListener('keydown', (event) => {
  const { tagName } = event.target as HTMLElement
  if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT)$/.test(tagName)) return
  const way = { ArrowLeft: 'back', ArrowRight: 'next', Home: 'first', End: 'last' }[event.key]
  if (way !== undefined) stepTo(way as 'back')
  else if (event.key === ' ' && !/^(BUTTON|SUMMARY|A)$/.test(tagName)) toggle()
  else return
  event.preventDefault()
})
addEventListener('hashchange', () => void visit())
function refit(): void {
  fit()
  look(nowMs)
}
new ResizeObserver(refit).observe(canvas.parentElement!)
// The page chooses its colours before it is first painted, and again when the system's or the site's change.
new MutationObserver(refit).observe(document.documentElement, { attributeFilter: ['data-colours'] })
