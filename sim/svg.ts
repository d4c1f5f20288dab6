import type { History } from './history.ts'
import { leasesOf } from './checkers/leases.ts'
import { timeline } from './timeline.ts'

const LEFT = 70
const WIDTH = 1100
const LANE = 46
const TOP = 40

/** A picture of a run: a lane for each process and node, leases as bars, faults and writes as marks. */
export function svg(history: History, title: string): string {
  const leases = leasesOf(history)
  const lines = timeline(history).filter(({ weight }) => weight === 'fault' || weight === 'store')
  const ends = [...leases.map(({ endMs }) => endMs), ...lines.map(({ at }) => at), history.of('healed')[0]?.at ?? 0]
  const endMs = Math.max(1, ...ends.filter((end) => end < Infinity))
  const x = (atMs: number): number => LEFT + (Math.min(atMs, endMs) / endMs) * (WIDTH - LEFT - 20)
  const machines = new Set(leases.map(({ process }) => process.split('.')[0]!))
  for (const { place } of lines)
    for (const part of place.split('-')) if (part !== '' && part !== 'store') machines.add(part)
  const lanes = [...machines]
    .sort((a, b) => (a[0] === b[0] ? a.localeCompare(b) : a[0] === 'p' ? -1 : 1))
    .concat('store')
  const y = (place: string): number => TOP + Math.max(0, lanes.indexOf(place.split('.')[0]!)) * LANE
  const parts: string[] = []
  for (const lane of lanes) {
    parts.push(`<text x="8" y="${y(lane) + 18}">${lane}</text>`)
    parts.push(`<line x1="${LEFT}" y1="${y(lane) + 14}" x2="${WIDTH - 20}" y2="${y(lane) + 14}" stroke="#ddd"/>`)
  }
  for (const pause of history.of('pause')) {
    parts.push(bar(x(pause.at), x(pause.untilMs), y(pause.process) + 4, 20, '#bbb', `${pause.process} stands still`))
  }
  for (const { process, token, fromMs, endMs: toMs, resources } of leases) {
    parts.push(
      bar(
        x(fromMs),
        x(toMs),
        y(process) + 8,
        12,
        color(token),
        `${process} holds ${resources.join(', ')} with token ${token}`,
      ),
    )
  }
  for (const { at, place, text, weight } of lines) {
    const lane = place.split('-').at(-1)!
    const isLost = text.includes('lost')
    const fill = weight === 'fault' ? '#c60' : isLost ? '#d00' : text.startsWith('refuses') ? '#080' : '#888'
    const size = isLost || text.startsWith('refuses') ? 6 : 3
    parts.push(
      `<circle cx="${x(at).toFixed(1)}" cy="${y(lane) + 14}" r="${size}" fill="${fill}"><title>${escape(`${at.toFixed(1)} ms ${place} ${text}`)}</title></circle>`,
    )
  }
  for (let mark = 0; mark <= 10; mark++) {
    const at = (endMs * mark) / 10
    parts.push(
      `<text x="${x(at).toFixed(1)}" y="${TOP + lanes.length * LANE + 10}" fill="#666" text-anchor="middle">${Math.round(at)} ms</text>`,
    )
  }
  const height = TOP + lanes.length * LANE + 30
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="8" y="20" font-size="14" font-weight="bold">${escape(title)}</text>
${parts.join('\n')}
</svg>
`
}

function bar(from: number, to: number, top: number, height: number, fill: string, title: string): string {
  const width = Math.max(to - from, 1).toFixed(1)
  return `<rect x="${from.toFixed(1)}" y="${top}" width="${width}" height="${height}" fill="${fill}" opacity="0.8"><title>${escape(title)}</title></rect>`
}

/** A colour of its own for every token. */
function color(token: number): string {
  return `hsl(${(token * 137) % 360} 60% 50%)`
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
