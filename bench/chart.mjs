import { ratesWorstFirst } from './view.mjs'

/**
 * The chart of the results, drawn from a report: for every question the rate of ringfence, of the best peer and of the bare
 * commands as a bar whose length is the rate, so that half the length is half the rate. Where ringfence fares worst comes
 * first. Every group has its own scale. The thin line shows the spread of the rounds. No background, and colours that can be
 * read on white and on black.
 */
const WIDTH = 860
const LABEL = 190
const VALUE = 110
const BAR = 12
const STEP = 16
const HEAD = 22
const GAP = 14

export function chart(report) {
  let y = 4
  const groups = []
  for (const rate of ratesWorstFirst(report)) {
    groups.push(group(rate, y))
    y += HEAD + barsOf(rate).length * STEP + GAP
  }
  const footer = [
    'Sections per second; every group has its own scale, from 0. The thin line: half the distance of the quartiles to either side.',
    `${report.date}, commit ${report.commit}, Node ${report.node.replace(/^v/, '')}, Redis ${report.redis}, ioredis, loopback, ${report.cpu}.`,
  ]
  const height = y + 40
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Critical sections per second of ringfence and others">
<style>
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .title { font-weight: 600; font-size: 13px }
  .ours { fill: #2f81f7 } .bare { fill: #8b949e } .peer { fill: #c38b3f } .open { opacity: .45 }
  .spread { stroke: #57606a; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) { text { fill: #9aa4af } .spread { stroke: #d0d7de } }
</style>
${groups.join('\n')}
${footer.map((line, i) => `<text x="0" y="${y + 12 + i * 16}">${escaped(line)}</text>`).join('\n')}
</svg>
`
}

function barsOf({ ours, best, bare }) {
  return [
    { ...ours, kind: 'ours' },
    { ...best, kind: 'peer' },
    ...(bare.perSecond === undefined ? [] : [{ ...bare, kind: 'bare' }]),
  ]
}

function group(rate, top) {
  const { title, toBare, toBest, best } = rate
  const ratios = [
    ...(toBare === undefined ? [] : [`${toBare.toFixed(2)} of bare`]),
    `${toBest.toFixed(2)} of ${best.library}`,
  ]
  const rows = barsOf(rate)
  const most = Math.max(...rows.map(({ perSecond, spread = 0 }) => (perSecond || 1) * (1 + spread / 2)))
  const length = (perSecond) => (perSecond / most) * (WIDTH - LABEL - VALUE)
  const bars = rows.map(({ library, perSecond, spread = 0, note, kind }, i) => {
    const y = top + HEAD + BAR + i * STEP
    const text = whole(perSecond) + (note === undefined ? '' : ', not finished')
    const ends = [1 - spread / 2, 1 + spread / 2].map((part) => (LABEL + length(perSecond) * part).toFixed(1))
    const width = length(perSecond).toFixed(1)
    return [
      `<text x="${LABEL - 8}" y="${y}" text-anchor="end">${escaped(library)}</text>`,
      `<rect class="${kind}${note === undefined ? '' : ' open'}" x="${LABEL}" y="${y - BAR + 2}" width="${width}" height="${BAR}"/>`,
      spread === 0 ? '' : `<path class="spread" d="M${ends[0]} ${y - 4}H${ends[1]}"/>`,
      `<text x="${Math.max(LABEL + Number(width), Number(ends[1])) + 6}" y="${y}">${text}</text>`,
    ].join('')
  })
  const head = `<text x="0" y="${top + 14}"><tspan class="title">${escaped(title)}</tspan>: ${escaped(ratios.join(', '))}</text>`
  return `${head}\n${bars.join('\n')}`
}

function whole(value) {
  return Math.round(value).toLocaleString('en')
}

function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
}
