// node bench/publish.mjs            puts the kept results into the chart and into the documents
// node bench/publish.mjs --check    says which of them don't show the kept results; exit code 1 if there are any
import { readFileSync, writeFileSync } from 'node:fs'
import { argv } from 'node:process'
import { chart } from './chart.mjs'
import { againstTable, enginesTable, ratesTable, summary, sweepTable } from './figures.mjs'

const at = (path) => new URL(path, import.meta.url)
const read = (path) => readFileSync(at(path), 'utf8')

/** What each file has to be, by its path. */
function published() {
  const report = JSON.parse(read('results/latest.json'))
  const engines = JSON.parse(read('results/engines.json'))
  const sweep = JSON.parse(read('results/sweep.json'))
  const against = JSON.parse(read('results/against.json'))
  const blocks = {
    engines: enginesTable(engines),
    against: againstTable(against),
    rates: ratesTable(report),
    sweep: sweepTable(sweep),
  }
  return {
    'results/chart.svg': chart(report),
    '../README.md': between(read('../README.md'), 'figures', summary(report)),
    'README.md': Object.entries(blocks).reduce((text, [name, block]) => between(text, name, block), read('README.md')),
  }
}

/** The text with what stands between the two comments of that name replaced. */
function between(text, name, content) {
  const [begin, end] = [`<!-- ${name} -->\n`, `<!-- end of ${name} -->`]
  const [from, to] = [text.indexOf(begin), text.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`expected ${begin.trim()} and then ${end}, found no such pair`)
  return `${text.slice(0, from)}${begin}\n${content}\n\n${text.slice(to)}`
}

/** Writes what has changed, or only names it. Returns the paths. */
export function publish({ check = false } = {}) {
  const stale = Object.entries(published()).filter(([path, content]) => read(path) !== content)
  if (!check) for (const [path, content] of stale) writeFileSync(at(path), content)
  return stale.map(([path]) => path.replace(/^(?!\.\.)/, 'bench/').replace('../', ''))
}

if (import.meta.filename === argv[1]) {
  const check = argv.includes('--check')
  const paths = publish({ check })
  for (const path of paths) process.stdout.write(`${path} ${check ? 'does not show the kept results' : 'written'}\n`)
  if (check && paths.length > 0) process.exitCode = 1
}
