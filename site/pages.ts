import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { reference, type Entry } from '../scripts/public-api.ts'
import { SCENARIOS } from '../sim/scenarios/catalogue.ts'
import { tell } from '../sim/scenarios/tell.ts'
import { pageOf, relinked } from './links.ts'

/** Documents outside of docs/ that are pages, too. */
const OTHERS = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md', 'bench/README.md', 'sim/README.md']

/** The first page begins with this; the README follows. */
const HERO = `---
layout: home
hero:
  name: ringfence
  text: Distributed locks for Node
  tagline: Leases with fencing tokens, on the database that you already run. It says what it promises, and what it does not.
  actions:
    - { theme: brand, text: Which engine?, link: /choosing }
    - { theme: alt, text: What is promised, link: /guarantees }
    - { theme: alt, text: All pages, link: /all }
---

`

/** Writes all pages of the site into a folder: documents, programs, reference, pictures of failures. */
export async function writePages(root: string, folder: string): Promise<void> {
  rmSync(folder, { recursive: true, force: true })
  const write = (page: string, text: string): void => {
    mkdirSync(path.join(folder, path.dirname(page)), { recursive: true })
    writeFileSync(path.join(folder, page), text)
  }
  const linked = new Set<string>()
  for (const file of documents(root)) {
    const text = withoutComments(readFileSync(path.join(root, file), 'utf8'))
    const page = relinked(text, file, (target) => linked.add(target))
    // The hero says what the first lines of the README say.
    write(pageOf(file), file === 'README.md' ? HERO + page.slice(page.indexOf('```')) : page)
  }
  for (const file of linked) {
    if (/\.(png|svg)$/.test(file)) copyInto(path.join(folder, 'public'), root, file)
    else if (!file.endsWith('.md')) write(pageOf(file), program(root, file))
  }
  writeReference(reference(root), write)
  await writeFailures(write)
}

function documents(root: string): string[] {
  const own = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  return [...OTHERS, ...own.filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)]
}

/** Marks for scripts, which a reader should not see. */
function withoutComments(text: string): string {
  return text.replaceAll(/^<!--.*-->\n/gm, '')
}

function copyInto(folder: string, root: string, file: string): void {
  mkdirSync(path.join(folder, path.dirname(file)), { recursive: true })
  cpSync(path.join(root, file), path.join(folder, file))
}

const LANGUAGES: Readonly<Record<string, string>> = {
  '.mjs': 'js',
  '.ts': 'ts',
  '.yml': 'yaml',
  '.yaml': 'yaml',
  '.json': 'json',
  '.conf': 'ini',
  '.service': 'ini',
  '.timer': 'ini',
}

function program(root: string, file: string): string {
  const text = readFileSync(path.join(root, file), 'utf8')
  return `# ${path.basename(file)}\n\n\`${file}\` of the repository.\n\n\`\`\`\`${LANGUAGES[path.extname(file)] ?? 'text'}\n${text.trimEnd()}\n\`\`\`\`\n`
}

type Write = (page: string, text: string) => void

/** Where an entry is on the site. */
export function referencePage(specifier: string): string {
  return `reference/${specifier.replace('ringfence/', '').replace('ringfence', 'main')}.md`
}

function writeReference(entries: readonly Entry[], write: Write): void {
  const index = entries.map(({ specifier, exports }) => {
    const page = `/${referencePage(specifier)}`
    const names = exports.map(({ name }) => `[${name}](${page}#${name.toLowerCase()})`)
    return `## [${specifier}](${page})\n\n${names.join(' · ')}\n`
  })
  const about =
    'Everything that the package exports, made from the comments in its types. [Options, limits and reasons](/api.md) has the tables.'
  write('reference/index.md', `# Reference\n\n${about}\n\n${index.join('\n')}`)
  for (const { specifier, exports } of entries) {
    const parts = exports.map(
      ({ name, comment, code }) => `## ${name}\n\n${escaped(comment)}\n\n\`\`\`ts\n${code}\n\`\`\`\n`,
    )
    write(referencePage(specifier), `# ${specifier}\n\n${parts.join('\n')}`)
  }
}

/** Comments are prose: what looks like a link or a mark-up of HTML in them is not meant so. */
function escaped(comment: string): string {
  return comment.replaceAll(/`[^`]*`|[[\]<>]/g, (found) => (found.length > 1 ? found : `\\${found}`))
}

async function writeFailures(write: Write): Promise<void> {
  const parts: string[] = []
  for (const scenario of SCENARIOS) {
    const { picture, markdown } = await tell(scenario)
    write(`public/failures/${scenario.name}.svg`, picture)
    const [heading, ...rest] = markdown.replace('###', '##').split('\n\n')
    const image = `![What happens without the remedy, over time](/failures/${scenario.name}.svg)`
    parts.push([heading, rest[0], image, ...rest.slice(1)].join('\n\n'))
  }
  const about =
    'Each failure of the literature, played by the simulator with the library itself: a picture of what happens without the remedy, then both plays as text.'
  write('failures.md', `# Failures, as pictures\n\n${about}\n\n${parts.join('\n')}`)
}
