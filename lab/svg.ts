import { Lanes, type Bar } from './lanes.ts'
import type { Run } from './play.ts'
import { Scale } from './scale.ts'
import { clockTime, named } from './tell.ts'

const LEFT = 70
const WIDTH = 900
const LANE = 34
const AXIS = 26
/** Colours that can be read on a light page and on a dark one: an image does not know which it is on. */
const CLIENTS = ['#3f78d6', '#12908a', '#b8508c', '#9a7420']
const SOFT = '#818a99'
const FAULT = '#d9751e'
const CAME = { good: '#2c9a62', bad: '#e04a50', refused: '#7d63d6' }

/** The lanes of a whole run as a picture that stands still. */
export function svg(run: Run): string {
  const scale = new Scale(run.history)
  const lanes = new Lanes(run, scale)
  const unit = (WIDTH - LEFT - 14) / scale.length
  const x = (place: number): string => (LEFT + place * unit).toFixed(1)
  const y = (lane: number): number => (lane + 0.5) * LANE
  const bottom = lanes.names.length * LANE
  const parts = [
    ...scale.marks(86 / unit).flatMap((ms) => {
      const at = x(scale.placeOf(ms))
      const text =
        Number(at) > WIDTH - 30 || Number(at) < LEFT + 20 ? '' : label(at, bottom + 16, clockTime(ms), 'middle', SOFT)
      return [`<path d="M${at} 0V${bottom}" stroke="${SOFT}" stroke-opacity=".25"/>`, text]
    }),
    ...lanes.names.flatMap((name, lane) => [
      `<path d="M${LEFT} ${y(lane)}H${WIDTH}" stroke="${SOFT}" stroke-opacity=".18"/>`,
      label('6', y(lane) + 4, name.startsWith('p') ? `client ${named(name)}` : named(name), 'start', SOFT),
    ]),
    ...[...lanes.outages, ...lanes.pauses].map((bar) => stripes(bar, scale.length, x)),
    ...wires(lanes, scale, x, y),
    ...lanes.leases.map(({ from, to, lane, client, label: text }) => {
      const end = Math.min(to, scale.length)
      const width = Math.max((end - from) * unit, 4)
      const bar = `<rect x="${x(from)}" y="${y(lane) - 8}" width="${width.toFixed(1)}" height="16" rx="${Math.min(8, width / 2)}" fill="${colour(client)}"/>`
      return width < 60 ? bar : bar + label((Number(x(from)) + 9).toFixed(1), y(lane) + 4, text, 'start', '#fff')
    }),
    ...lanes.badLines.map(({ from, to, lane }) => {
      const d = `M${x(from)} ${(lane + 1) * LANE - 4}H${x(Math.min(to, scale.length))}`
      return `<path d="${d}" stroke="${FAULT}" stroke-width="2" stroke-dasharray="2 4"/>`
    }),
    ...lanes.faults.map(({ at, lane }) => `<path d="M${x(at)} ${y(lane) - 7}l6 7l-6 7l-6 -7z" fill="${FAULT}"/>`),
    ...lanes.writes.map(({ at, lane, client, came }) => {
      const sign = { good: '✓', bad: '!', refused: '×' }[came]
      const way = `<path d="M${x(at)} ${y(client)}V${y(lane) - 9}" stroke="${colour(client)}" stroke-width="2"/>`
      return `${way}<circle cx="${x(at)}" cy="${y(lane)}" r="9" fill="${CAME[came]}"/>${label(x(at), y(lane) + 4, sign, 'middle', '#fff')}`
    }),
  ]
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${bottom + AXIS}" font-family="sans-serif" font-size="12" fill="none">
<defs><pattern id="stripes" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V7" stroke="${FAULT}" stroke-width="1.6"/></pattern></defs>
${parts.filter(Boolean).join('\n')}
</svg>
`
}

function colour(client: number): string {
  return CLIENTS[client % CLIENTS.length]!
}

function label(x: string, y: number, text: string, anchor: 'start' | 'middle', fill: string): string {
  return `<text x="${x}" y="${y}" text-anchor="${anchor}" fill="${fill}">${text}</text>`
}

function stripes({ from, to, lane }: Bar, length: number, x: (place: number) => string): string {
  const width = Number(x(Math.min(to, length))) - Number(x(from))
  return `<rect x="${x(from)}" y="${lane * LANE + 2}" width="${width.toFixed(1)}" height="${LANE - 4}" fill="url(#stripes)" opacity=".5"/>`
}

/** A path for each client and direction; what would be drawn on the same place is drawn once. */
function wires(lanes: Lanes, scale: Scale, x: (place: number) => string, y: (lane: number) => number): string[] {
  const paths = new Map<string, Set<string>>()
  for (const { from, to, fromLane, toLane, client, isReply } of lanes.wires(0, scale.length)) {
    const style = `stroke="${colour(client)}" stroke-opacity="${isReply ? 0.35 : 0.8}"`
    const line = `M${Math.round(Number(x(from)))} ${y(fromLane)}L${Math.round(Number(x(to)))} ${y(toLane)}`
    const drawn = paths.get(style) ?? new Set()
    paths.set(style, drawn.add(line))
  }
  return [...paths].map(([style, drawn]) => `<path d="${[...drawn].join('')}" ${style}/>`)
}
