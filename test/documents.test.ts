import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { anchor } from '../site/links.ts'

const root = path.resolve(import.meta.dirname, '..')
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8')
const below = (folder: string): string[] =>
  readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => path.join(folder, name))
const pages = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'bench/README.md',
  'sim/README.md',
  ...below('docs'),
].filter((file) => file.endsWith('.md'))

function anchorsOf(file: string): string[] {
  const text = read(file).replaceAll(/```[\s\S]*?```/g, '')
  return [...text.matchAll(/^#+ (.*)$/gm)].map((match) => anchor(match[1]!))
}

test('an anchor is what a heading is linked by', () => {
  expect(anchor('A node that lost its memory (redlock)')).toBe('a-node-that-lost-its-memory-redlock')
  expect(anchor('`once` with `atLeast`')).toBe('once-with-atleast')
  expect(anchorsOf('docs/guarantees.md')).not.toContain('no-such-heading')
})

/** The links of a page to files of this repository, each with the file and the heading that it leads to. */
function linksOf(page: string): { link: string; target: string; heading: string | undefined }[] {
  const text = read(page)
    .replaceAll(/```[\s\S]*?```/g, '')
    .replaceAll(/`[^`\n]*`/g, '')
  return [...text.matchAll(/\]\((?!https?:|mailto:)([^)\s]*)\)/g)].map(([, link = '']) => {
    const [file = '', heading] = decodeURI(link).split('#')
    return { link, target: file === '' ? page : path.join(path.dirname(page), file), heading }
  })
}

test.each(pages)('%s links to files and headings that exist', (page) => {
  const broken = linksOf(page).filter(
    ({ target, heading }) =>
      !existsSync(path.join(root, target)) || (heading !== undefined && !anchorsOf(target).includes(heading)),
  )
  expect(broken).toEqual([])
})

test('the page about shared leases says of each engine whether it has them, as its guarantees do', () => {
  const rows = read('docs/kinds/shared.md')
    .split('\n')
    .map((line) => /^\| (?:\[([^\]]+)\]\([^)]*\)|(\w+)) \| (yes|no) \|/.exec(line))
    .filter((row) => row !== null)
  const said = rows.map(([, linked, plain, has]) => [(linked ?? plain!).split(',')[0]!, has])
  const promised = below('src/engines')
    .filter((file) => /^src\/engines\/(memory|(?!shared\/)\w+\/(index|engine|make))\.ts$/.test(file))
    .flatMap((file) =>
      [...read(file).matchAll(/^ +shared: (true|false),$/gm)].map(([, shared]) => {
        return [path.basename(file) === 'memory.ts' ? 'memory' : file.split('/')[2]!, shared === 'true' ? 'yes' : 'no']
      }),
    )
  expect(promised.length).toBeGreaterThan(8)
  expect(new Map(said as [string, string][])).toEqual(new Map(promised as [string, string][]))
})

test('the comparison answers what it asks', () => {
  const cells = [...read('docs/comparison.md').matchAll(/^\|.*\|$/gm)].flatMap(([row]) => row.split('|'))
  expect(cells.length).toBeGreaterThan(400)
  expect(cells.filter((cell) => cell.includes('?'))).toEqual([])
})

test('no page of the package links to a file that is not in it', () => {
  // The build is not needed for its list, and no page links into it.
  const packing = ['pack', '--dry-run', '--json', '--ignore-scripts', '--loglevel=error']
  const [packed] = JSON.parse(execFileSync('npm', packing, { cwd: root, encoding: 'utf8' })) as [
    { files: { path: string }[] },
  ]
  const files = packed.files.map((file) => file.path)
  const documents = files.filter((file) => file.endsWith('.md') && !file.startsWith('dist/'))
  expect(documents).toEqual(expect.arrayContaining(['README.md', 'docs/README.md', 'bench/README.md']))
  const broken = documents.flatMap((page) =>
    linksOf(page).flatMap(({ link, target }) => (files.includes(target) ? [] : [`${page}: ${link}`])),
  )
  expect(broken).toEqual([])
})

test('docs/README.md links to every page', () => {
  const linked = linksOf('docs/README.md').map(({ target }) => target)
  // The pages about testing have an index of their own.
  const listed = [...linked, ...linksOf('docs/testing/README.md').map(({ target }) => target)]
  const own = below('docs').filter((file) => file.endsWith('.md') && file !== 'docs/README.md')
  expect(own.filter((page) => !listed.includes(page))).toEqual([])
})

test.each(pages)('%s names files and folders that exist', (page) => {
  const named = [...read(page).matchAll(/`((?:src|test|sim|chaos|harness|bench|scripts|docs|examples)\/[\w./-]*)`/g)]
  expect(named.flatMap(([, file = '']) => (existsSync(path.join(root, file)) ? [] : [file]))).toEqual([])
})

const folders = (folder: string): string[] =>
  readdirSync(path.join(root, folder), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => path.join(folder, name))

test('CONTRIBUTING names functions of the core that exist', () => {
  const named = [...read('CONTRIBUTING.md').matchAll(/`([\w/-]+\.ts): (?:(\w+)\.)?(#?\w+)`/g)]
  const missing = named.filter(([, file = '', owner, name = '']) => {
    const code = read(path.join('src', file))
    const isThere = new RegExp(`(function |class |^  (async )?)${name}\\b`, 'm').test(code)
    return !isThere || (owner !== undefined && !new RegExp(`class ${owner}\\b`).test(code))
  })
  expect(missing.map(([text]) => text)).toEqual([])
  expect(named.length).toBeGreaterThan(20)
})

test('CONTRIBUTING has a row for every folder of the code, the tests and the tools', () => {
  const map = read('CONTRIBUTING.md')
  const all = [
    ...folders('src'),
    ...folders('test'),
    'sim',
    'chaos',
    'harness',
    'bench',
    'examples',
    'scripts',
    'docs',
    'man',
  ]
  expect(all.filter((folder) => !map.includes(`\`${folder}/\``))).toEqual([])
  const engines = folders('src/engines').map((folder) => path.basename(folder))
  expect(engines.filter((engine) => !map.includes(`\`${engine}/\``))).toEqual([])
})

test.each([
  ['docs/engines/redis.md', 'ioredis', 'ioredis'],
  ['docs/engines/redis.md', 'iovalkey', 'iovalkey'],
  ['docs/engines/redis.md', 'redis', 'node-redis'],
  ['docs/engines/redis.md', '@valkey/valkey-glide', 'valkey-glide'],
  ['docs/engines/mongodb.md', 'mongodb', 'driver'],
  ['docs/engines/zookeeper.md', 'node-zookeeper-client', 'node-zookeeper-client'],
])('%s names the version of %s that the tests run', (page, dependency, called) => {
  const { devDependencies } = JSON.parse(read('package.json')) as { devDependencies: Record<string, string> }
  expect(read(page).replaceAll('\n', ' ')).toContain(`${called} ${devDependencies[dependency]}`)
})

const git = (...args: string[]): string => execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: 'pipe' })

/** Every commit that HEAD descends from; undefined without git, and where the clone has only the last ones. */
function commits(): readonly string[] | undefined {
  try {
    if (git('rev-parse', '--is-shallow-repository').trim() !== 'false') return undefined
    return git('rev-list', 'HEAD').trim().split('\n')
  } catch {
    return undefined
  }
}

const history = commits()

/** The commits of what is kept of runs. */
function keptCommits(): { page: string; hash: string }[] {
  const kept = ['chaos/results.json', 'versions/results.json', 'sim/gate/results.json'].concat(
    below('bench/results').filter((file) => file.endsWith('.json')),
  )
  return kept.flatMap((page) => {
    const hashes = [...read(page).matchAll(/"(?:commit|before)": ?"(\w+)/g)].map(([, hash = '']) => hash)
    return [...new Set(hashes)].map((hash) => ({ page, hash }))
  })
}

/** A hash of digits alone is one where it is said to be one: elsewhere it is a token or a figure. */
const HASH =
  /(?<![\w.#/-])(?!\d+\b)([0-9a-f]{7,12}|[0-9a-f]{40})(?![\w-])|(?<=\bcommit |\d{4}-\d\d-\d\d, )(\d{7,12})\b/g

test('a commit is known by its letters, or by the words before it', () => {
  const text = 'commit 5199631, 1234567 locks, 4e28980 of 2026-11-18, 5876876 | 0123456789 ms'
  expect([...text.matchAll(HASH)].map(([hash]) => hash)).toEqual(['5199631', '4e28980', '5876876'])
})

test.runIf(history !== undefined)('every commit that a page or a kept run names is in the history', () => {
  const named = pages.flatMap((page) => [...read(page).matchAll(HASH)].map(([hash]) => ({ page, hash })))
  expect(named.length).toBeGreaterThan(10)
  const kept = keptCommits()
  expect(new Set(kept.map(({ page }) => page)).size).toBeGreaterThan(4)
  expect([...named, ...kept].filter(({ hash }) => !history!.some((commit) => commit.startsWith(hash)))).toEqual([])
})
