import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { reference, type Entry } from '../scripts/public-api.ts'
import { sceneOf } from '../lab/address.ts'
import { play } from '../lab/play.ts'
import { SCENES } from '../lab/scenes.ts'
import { svg } from '../lab/svg.ts'
import { named, plain } from '../lab/tell.ts'
import { REMEDIES } from '../lab/words.ts'
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
    - { theme: alt, text: Break it in the lab, link: /lab/index.html, target: _self }
features:
  - { title: Ten engines, details: 'Redis, a quorum of masters, PostgreSQL, MariaDB, MongoDB, etcd, Consul, ZooKeeper, a file, memory: one API.', link: /choosing }
  - { title: Fencing tokens, details: Every lease has one. Guards make the store refuse a holder that woke too late., link: /fencing }
  - { title: Recipes, details: Programs to copy. Each says when a database needs no lock at all., link: /recipes/ }
  - { title: 'Operating, at night', details: 'A lock that is stuck, alerts, deploying, nodes of a quorum.', link: /operating/ }
  - { title: Failures as pictures, details: 'Each as the simulator plays it, with the remedy and without.', link: /failures }
  - { title: Coming from elsewhere, details: 'redlock, redis-semaphore, verrou, Redisson, flock and others, and how to deploy the change.', link: /migrating/ }
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
    const page = toTheLab(relinked(text, file, (target) => linked.add(target)))
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

/** A failure that a page speaks of plays in the lab. The lab's own page has a heading for each, and the link below that. */
function toTheLab(page: string): string {
  return page
    .replaceAll(/\]\(\/lab\.md#([a-z-]+)\)/g, (whole, name: string) => (isScene(name) ? linkToPlay(name) : whole))
    .replaceAll(/^### `#([a-z-]+)`$/gm, (whole, name: string) =>
      isScene(name) ? `${whole}\n\n[Play it${linkToPlay(name)}` : whole,
    )
}

function linkToPlay(scene: string): string {
  return `](/lab/index.html#${scene}){target="_self"}`
}

function isScene(name: string): boolean {
  return SCENES.some((scene) => scene.name === name)
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
    const parts = GROUPS.flatMap(([title]) => {
      const group = exports.filter(({ code }) => GROUPS.find(([, kind]) => kind.test(code))?.[0] === title)
      return group.length === 0 ? [] : [`## ${title}\n`, ...group.map(described)]
    })
    write(referencePage(specifier), `# ${specifier}\n\n${intro(specifier)}\n\n${parts.join('\n')}`)
  }
}

/** First what is called, last what is only named in types. */
const GROUPS = [
  ['Functions', /^export (function|const) /m],
  ['Classes', /^export (abstract )?class (?!\w*Error\b)/m],
  ['Errors', /^export (abstract )?class /m],
  ['Types', /^export (interface|type) /m],
] as const

type Export = Entry['exports'][number]

function described({ name, comment, code }: Export): string {
  return `### ${name}\n\n${escaped(comment)}\n\n\`\`\`ts\n${code}\n\`\`\`\n`
}

/** Where an entry is explained, of those whose name is not that of an engine. */
const GUIDES: Readonly<Record<string, string>> = {
  ringfence: '[Options, limits and reasons](/api.md)',
  'ringfence/memory': '[Choosing](/choosing.md)',
  'ringfence/redlock': '[In place of npm’s redlock](/redlock-drop-in.md)',
  'ringfence/guard': '[Fencing and guards](/fencing.md)',
  'ringfence/otel': '[Metrics and traces](/observability.md)',
  'ringfence/dashboard': '[The dashboard](/dashboard.md)',
  'ringfence/conformance': '[An engine of your own](/writing-an-engine.md)',
  'ringfence/testing': '[In frameworks, and in tests](/frameworks.md)',
}

function intro(specifier: string): string {
  const engine = specifier.replace('ringfence/', '')
  const guide = GUIDES[specifier] ?? `[${engine} in practice](/engines/${engine}.md)`
  return `What can be imported from \`${specifier}\`, with the comments of its types. How it is used: ${guide}.`
}

/** Comments are prose: what looks like a link or a mark-up of HTML in them is not meant so. */
function escaped(comment: string): string {
  return comment.replaceAll(/`[^`]*`|[[\]<>]/g, (found) => (found.length > 1 ? found : `\\${found}`))
}

/** Each scene of the lab twice, as pictures: as it is prepared, and with the first of its remedies. */
async function writeFailures(write: Write): Promise<void> {
  const parts: string[] = []
  for (const { name, title, about, group, remedies } of SCENES.filter((scene) => scene.remedies.length > 0)) {
    const scene = sceneOf(name)
    const [remedy] = remedies
    const without = await play(scene)
    const remedied = await play({ ...scene, off: scene.off.filter((one) => one !== remedy) })
    write(`public/failures/${name}.svg`, svg(without))
    write(`public/failures/${name}-remedied.svg`, svg(remedied))
    if (name === 'catalogue-crash-before-release') parts.push('# The catalogue', CATALOGUE)
    parts.push(
      `## ${title}`,
      `${named(about)} [Play it in the lab](/lab/index.html#${name}){target="_self"}.`,
      `**${sentence(without.damage)}**`,
      `![${title}: the lanes of the clients and nodes over time](/failures/${name}.svg)`,
      `**${group === 'catalogue' ? 'With the remedy' : `With this switched on: ${REMEDIES[remedy!][0].toLowerCase()}`}:**`,
      `![${title}, with the remedy](/failures/${name}-remedied.svg)`,
    )
  }
  write('failures.md', `# Failures, as pictures\n\n${FAILURES}\n\n${parts.join('\n\n')}\n`)
}

const FAILURES =
  'Each failure as the simulator plays it with the library itself, first as it goes wrong, then with a remedy. A bar is a lease, slanted lines are messages, stripes are machines that stand still or are down, a dotted line is a client whose line to a node is cut or slow; ✓ is a write, ! one that loses an update, × one that the store refuses. Time is drawn shorter where nothing happens.'
const CATALOGUE = 'The rest are the scenarios of [the catalogue](/testing/catalogue.md), which has them as text.'

function sentence(damage: string | undefined): string {
  const text = plain(damage ?? 'nothing was lost')
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`
}
