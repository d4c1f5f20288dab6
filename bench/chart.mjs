/**
 * The chart of the results, drawn from a report: for some questions, every library's rate as a bar whose length is the
 * rate, so that half the length is half the rate. Every panel has its own scale. The thin line shows the spread of the
 * rounds. No background, and colours that can be read on white and on black.
 */
const PANELS = [
  { number: 1, table: 0, title: 'Uncontended, one node' },
  { number: 2, table: 0, title: 'Uncontended, five nodes' },
  { number: 3, table: 0, title: '64 in flight, one node' },
  { number: 3, table: 1, title: '64 in flight, five nodes' },
  { number: 5, table: 0, title: '200 waiters, one process, one node' },
  { number: 5, table: 1, title: '200 waiters, one process, five nodes' },
  { number: 6, table: 0, title: '4 processes × 50 waiters, one node' },
  { number: 6, table: 1, title: '4 processes × 50 waiters, five nodes' },
]

/** Rows that are no library but what one could reach. */
const LIMITS = /^(bare commands|its scripts alone)/

const WIDTH = 860
const LABEL = 190
const VALUE = 200
const BAR = 14
const STEP = 20
const HEAD = 34

export function chart(report) {
  let y = 10
  const parts = []
  for (const { number, table, title } of PANELS) {
    const rows = report.questions.find((question) => question.number === number)?.tables[table]?.rows
    if (rows === undefined) continue
    parts.push(panel(title, rows, y))
    y += HEAD + rows.length * STEP + 12
  }
  const footer = [
    'Sections per second. Every panel has its own scale, from 0. The thin line: half the distance of the quartiles to either side.',
    `${report.date}, commit ${report.commit}, Node ${report.node}, Redis ${report.redis}, ioredis, loopback, ${report.cpu}.`,
  ]
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y + 36}" viewBox="0 0 ${WIDTH} ${y + 36}" role="img" aria-label="Critical sections per second of ringfence and other libraries">
<style>
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .title { font-weight: 600; font-size: 13px }
  .ours { fill: #2f81f7 } .bare { fill: #8b949e } .peer { fill: #c38b3f } .open { opacity: .45 }
  .spread { stroke: #57606a; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) { text { fill: #9aa4af } .spread { stroke: #d0d7de } }
</style>
${parts.join('\n')}
${footer.map((line, i) => `<text x="0" y="${y + 8 + i * 16}">${escaped(line)}</text>`).join('\n')}
</svg>
`
}

function panel(title, rows, top) {
  const most = Math.max(...rows.map(({ perSecond, spread = 0 }) => (perSecond || 1) * (1 + spread / 2)))
  const length = (perSecond) => (perSecond / most) * (WIDTH - LABEL - VALUE)
  const bars = rows.map(({ library, perSecond = 0, spread = 0, toBare, note }, i) => {
    const y = top + HEAD + i * STEP
    const rate = Math.round(perSecond || 0).toLocaleString('en')
    const text = note ?? (toBare === undefined ? rate : `${rate}  (${toBare.toFixed(2)} of bare)`)
    const kind = library === 'ringfence' ? 'ours' : LIMITS.test(library) ? 'bare' : 'peer'
    const width = length(perSecond || 0).toFixed(1)
    const ends = [1 - spread / 2, 1 + spread / 2].map((part) => (LABEL + length(perSecond || 0) * part).toFixed(1))
    const textAt = Math.max(LABEL + Number(width), Number(ends[1])) + 6
    return [
      `<text x="${LABEL - 8}" y="${y}" text-anchor="end">${escaped(library)}</text>`,
      `<rect class="${kind}${note === undefined ? '' : ' open'}" x="${LABEL}" y="${y - BAR + 3}" width="${width}" height="${BAR}"/>`,
      `<path class="spread" d="M${ends[0]} ${y - 4}H${ends[1]}"/>`,
      `<text x="${textAt}" y="${y}">${escaped(text)}</text>`,
    ].join('')
  })
  return `<text class="title" x="0" y="${top + 10}">${escaped(title)}</text>\n${bars.join('\n')}`
}

function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
}
