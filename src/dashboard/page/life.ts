import type { LifeRow } from '../protocol.ts'
import { bdi, element, find, setText } from './dom.ts'
import { duration, plural } from './format.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const WINDOWS = [1, 5, 15, 60, 6 * 60, 24 * 60, 7 * 24 * 60, 30 * 24 * 60].map((minutes) => minutes * MINUTE)
/** The window is as short as it can be and still hold the beginnings of this many. */
const AT_LEAST = 3
const MOST_LANES = 8

/** The leases of a resource on an axis of time: a bar each, with its renewals and doubts on it. */
export class Life {
  readonly #box = find('life-box', HTMLElement)
  readonly #lanes = find('life', HTMLElement)
  readonly #axis = [...find('life-axis', HTMLElement).children]
  readonly #note = find('life-note', HTMLElement)

  show(lives: readonly LifeRow[]): void {
    this.#box.hidden = lives.length === 0
    const oldest = lives.slice(-AT_LEAST).map(({ beganMs, endedMs }) => beganMs ?? endedMs ?? 0)
    const spanMs = WINDOWS.find((one) => Math.max(...oldest) <= one) ?? WINDOWS.at(-1)!
    const seen = lives.filter(({ endedMs }) => endedMs === null || endedMs < spanMs).slice(-MOST_LANES)
    this.#lanes.replaceChildren(...seen.map((life) => lane(life, spanMs)))
    this.#lanes.setAttribute('aria-label', `The last ${span(spanMs)}. ${seen.map(told).join(' ')}`)
    setText(this.#axis[0]!, `${span(spanMs)} ago`)
    setText(this.#axis[1]!, `${span(spanMs / 2)} ago`)
    const guessed = seen.some(({ beganExact, endedExact, ended, renewed, renewalsExact }) => {
      return !beganExact || (ended !== null && !endedExact) || (renewed > 0 && !renewalsExact)
    })
    setText(
      this.#note,
      guessed
        ? 'Hollow marks are inferred by comparing two looks: they are up to one look late, and what came and went between two looks is not there. Doubts are told by locks of this process alone.'
        : 'All of it was told by locks of this process.',
    )
  }
}

function lane(life: LifeRow, spanMs: number): HTMLElement {
  const { label, owner, token, beganMs, endedMs, began, ended, beganExact, endedExact } = life
  const at = (agoMs: number): number => 100 * (1 - Math.min(1, agoMs / spanMs))
  const placed = (kind: string, agoMs: number, exact: boolean): HTMLElement => {
    const made = element('i', { class: `${kind}${exact ? '' : ' guessed'}` })
    made.style.setProperty('left', `${at(agoMs)}%`)
    return made
  }
  const from = at(beganMs ?? spanMs)
  const bar = element('i', { class: endedMs === null ? 'bar-of held' : 'bar-of' })
  bar.style.setProperty('left', `${from}%`)
  bar.style.setProperty('width', `${at(endedMs ?? 0) - from}%`)
  const isIn = (agoMs: number): boolean => agoMs < spanMs
  const track = element('div', { class: 'track' }, bar)
  for (const agoMs of life.renewals.filter(isIn)) track.append(placed('renewal', agoMs, life.renewalsExact))
  for (const agoMs of life.doubts.filter(isIn)) track.append(placed('doubt', agoMs, true))
  if (beganMs !== null && isIn(beganMs) && began !== 'seen')
    track.append(placed(began.replace(' ', '-'), beganMs, beganExact))
  if (ended !== null && endedMs !== null) track.append(placed(`end ${ended.split(' ')[0]}`, endedMs, endedExact))
  return element(
    'div',
    { class: 'lane' },
    bdi(label ?? owner, { class: 'who', title: owner }),
    element('span', { class: 'token' }, token),
    track,
  )
}

const BEGAN = { seen: 'held before the dashboard looked', granted: 'granted', 'handed over': 'handed over' }
const ENDED = { released: 'released', lost: 'ran out', forced: 'released by force', 'handed over': 'handed over' }

/** One lease, for those who do not see it. */
function told({ label, owner, beganMs, began, endedMs, ended, renewed, doubts }: LifeRow): string {
  const parts = [`${BEGAN[began]}${beganMs === null ? '' : ` ${duration(beganMs)} ago`}`]
  if (renewed > 0) parts.push(`renewed ${plural(renewed, 'time')}`)
  if (doubts.length > 0) parts.push(`in doubt ${plural(doubts.length, 'time')}`)
  parts.push(ended === null ? 'held now' : `${ENDED[ended]} ${duration(endedMs ?? 0)} ago`)
  return `${label ?? owner}: ${parts.join(', ')}.`
}

function span(ms: number): string {
  if (ms < MINUTE) return `${ms / 1000} s`
  if (ms < HOUR) return `${ms / MINUTE} min`
  return ms < 24 * HOUR ? `${ms / HOUR} h` : `${ms / HOUR / 24} d`
}
