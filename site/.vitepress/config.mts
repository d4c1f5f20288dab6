import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { defineConfig, type DefaultTheme } from 'vitepress'
import { anchor } from '../links.ts'

const pages = path.join(import.meta.dirname, '../.pages')

/** What a page is called where its heading says more than a list needs. */
const NAMES: Readonly<Record<string, string>> = {
  api: 'Options and limits',
  comparison: 'Comparison',
  fencing: 'Fencing and guards',
  guarantees: 'Guarantees',
  observability: 'Metrics and traces',
  'background/cap': 'CAP, zones and regions',
  'background/threat-model': 'Threat model',
  'engines/file': 'File',
  'engines/redis': 'Redis and Redlock',
  'kinds/moving': 'A lease that moves',
  'kinds/reentrant': 'Re-entrant calls',
  'migrating/index': 'What changes, how to deploy',
  'operating/index': 'Start here',
  'recipes/index': 'All recipes',
  'reference/index': 'All exports',
  'reference/main': 'ringfence',
  'testing/index': 'What is claimed',
  'testing/known-bugs': 'Bugs of other libraries',
}

/** The heading of a page, without what explains it and without what its group says. */
function titleOf(page: string): string {
  const [, heading = page] = /^# (.*)$/m.exec(readFileSync(path.join(pages, `${page}.md`), 'utf8')) ?? []
  const title = heading.replaceAll('`', '')
  const [, number] = /^decisions\/(\d+)-/.exec(page) ?? []
  if (number !== undefined) return `${Number(number)}. ${title.replace(/^\d+[.:] /, '')}`
  return NAMES[page] ?? title.replace(/^Coming from /, '').replace(/: .*$/, '')
}

function item(page: string): DefaultTheme.SidebarItem {
  return { text: titleOf(page), link: `/${page.replace(/(^|\/)index$/, '$1')}` }
}

/** All pages of a folder: its index, then those that most people look for, then the others in the order of their names. */
function folder(name: string, ...first: string[]): DefaultTheme.SidebarItem[] {
  const files = readdirSync(path.join(pages, name)).filter((file) => file.endsWith('.md'))
  const order = ['index', ...first]
  const rank = (file: string): number => (order.includes(file) ? order.indexOf(file) : order.length)
  const names = files.map((file) => file.slice(0, -'.md'.length)).sort()
  return names.sort((a, b) => rank(a) - rank(b)).map((file) => item(`${name}/${file}`))
}

function group(text: string, items: DefaultTheme.SidebarItem[], collapsed = true): DefaultTheme.SidebarItem {
  return { text, items, collapsed }
}

const existing = (...names: string[]): DefaultTheme.SidebarItem[] => {
  const there = new Set(readdirSync(pages))
  return names.filter((name) => there.has(`${name}.md`)).map(item)
}

export default defineConfig({
  title: 'ringfence',
  description: 'Distributed locks for Node: leases with fencing tokens, on the database that you already run.',
  srcDir: '.pages',
  cacheDir: '.cache',
  cleanUrls: false,
  lastUpdated: false,
  markdown: {
    anchor: { slugify: anchor },
    // The documents are plain Markdown: what looks like a tag in them is text.
    config: (md) => md.set({ html: false }),
  },
  themeConfig: {
    search: {
      provider: 'local',
      options: {
        miniSearch: {
          searchOptions: {
            // Programs, signatures and reasons have the words that people type in their titles; the pages that explain come first.
            boostDocument: (page: string) =>
              /^\/(reference|files|decisions|testing|contributing|changelog)/.test(page) ? 0.3 : 1,
          },
        },
      },
    },
    outline: [2, 3],
    nav: [
      { text: 'Guarantees', link: '/guarantees' },
      { text: 'Operating', link: '/operating/' },
      { text: 'Reference', link: '/reference/' },
      { text: 'All pages', link: '/all' },
      // Not one of these pages: a program of its own.
      { text: 'Lab', link: '/lab/index.html', target: '_self' },
    ],
    sidebar: [
      group(
        'Guide',
        [
          { text: 'Start', link: '/' },
          ...existing(
            'choosing',
            'guarantees',
            'fencing',
            'api',
            'cli',
            'dashboard',
            'lab',
            'observability',
            'frameworks',
            'browsers',
            'runtimes',
            'versions',
            'comparison',
            'redlock-drop-in',
            'changelog',
          ),
        ],
        false,
      ),
      group('Engines', folder('engines', 'redis', 'postgres', 'mariadb', 'mongodb')),
      group('Kinds of locks', folder('kinds', 'semaphore', 'shared', 'once')),
      group('Recipes', folder('recipes')),
      group('Coming from elsewhere', folder('migrating', 'redlock', 'redis-semaphore', 'redisson')),
      group('Operating', folder('operating', 'stuck', 'deploying', 'alerts')),
      group('Background', [...existing('failures'), ...folder('background', 'misconceptions')]),
      group('Reference', folder('reference', 'main')),
      group('How it is tested', [...folder('testing'), item('sim/index'), item('bench/index')]),
      group('Working on it', [
        ...existing('contributing', 'writing-an-engine', 'security'),
        group('Decisions', folder('decisions')),
      ]),
    ],
  },
})
