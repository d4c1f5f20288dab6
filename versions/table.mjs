// Makes the tables of docs/versions.md from results.json: node versions/table.mjs
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { drivers, frameworks, servers } from './list.mjs'

const page = path.join(import.meta.dirname, '../docs/versions.md')
const { devDependencies } = JSON.parse(readFileSync(path.join(import.meta.dirname, '../package.json'), 'utf8'))
const results = path.join(import.meta.dirname, 'results.json')

/** The page as it has to be. */
export function pageWithTables() {
  const found = JSON.parse(readFileSync(results, 'utf8'))
  const text = readFileSync(page, 'utf8')
  const lists = { servers, drivers, frameworks }
  return Object.entries(lists).reduce((page, [name, list]) => between(page, name, tableOf(list, found)), text)
}

export function writeTable() {
  writeFileSync(page, pageWithTables())
}

function tableOf(list, found) {
  const rows = list.map((each) => {
    const what = each.product ?? each.driver
    const result = found[each.id]
    const refused = each.refused ? ['refused'] : []
    if (result === undefined) {
      const ran = [...refused, isOrdinary(each) ? 'in every `npm test`' : 'was not run'].join(', ')
      return `| ${what} | ${each.version ?? ''} | ${ran} | | |`
    }
    const { version, passed, skipped, failed, date, commit } = result
    const counts = [
      ...refused,
      `${passed} passed`,
      ...(skipped > 0 ? [`${skipped} skipped`] : []),
      ...(failed.length > 0 ? [`**${failed.length} failed**`] : []),
    ]
    return `| ${what} | ${version} | ${counts.join(', ')} | ${date} | ${commit} |`
  })
  return ['| | version | tests | date | commit |', '|---|---|---|---|---|', ...rows].join('\n')
}

/** What `npm test` runs with. */
export function isOrdinary({ use, driver, version }) {
  return driver === undefined ? Object.keys(use).length === 0 : devDependencies[driver] === version
}

/** The text with what stands between the two comments of that name replaced. */
function between(text, name, content) {
  const [begin, end] = [`<!-- ${name} -->\n`, `<!-- end of ${name} -->`]
  const [from, to] = [text.indexOf(begin), text.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`expected ${begin.trim()} and then ${end}, found no such pair`)
  return `${text.slice(0, from)}${begin}\n${content}\n\n${text.slice(to)}`
}

if (process.argv[1] === import.meta.filename) writeTable()
