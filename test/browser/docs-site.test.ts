import { execFileSync } from 'node:child_process'
import { createReadStream, existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createFolder } from '../../harness/temporary-folder.ts'
import { oneBrowser } from './browser.ts'

const root = path.resolve(import.meta.dirname, '../..')
const browser = oneBrowser()
let folder: string
let server: Server
let url: string

/** By its path below the site, the text of each page. */
let pages: Map<string, string>

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
}

beforeAll(async () => {
  folder = createFolder('docs-site')
  execFileSync('node', ['site/main.mjs', '--out', folder], { cwd: root, stdio: 'pipe' })
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.html'))
  pages = new Map(files.map((file) => [file, readFileSync(path.join(folder, file), 'utf8')]))
  server = createServer((request, response) => {
    const { pathname } = new URL(request.url!, 'http://site')
    const file = path.join(folder, pathname.endsWith('/') ? `${pathname}index.html` : pathname)
    if (!existsSync(file)) return response.writeHead(404).end()
    response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'application/octet-stream' })
    return createReadStream(file).pipe(response)
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}, 300_000)

afterAll(() => {
  server.close()
  rmSync(folder, { recursive: true, force: true })
})

test('every link leads to a page that is there, and to a heading of it', () => {
  const headings = new Map(
    [...pages].map(([file, text]) => [file, new Set([...text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id))]),
  )
  const links = [...pages].flatMap(([file, text]) =>
    [...text.matchAll(/ href="([^"]+)"/g)].map(([, href = '']) => ({ file, href })),
  )
  const broken = links.filter(({ file, href }) => {
    if (/^(https?|mailto):/.test(href)) return false
    const { pathname, hash } = new URL(href, `http://site/${file}`)
    const target = decodeURI(pathname)
      .slice(1)
      .replace(/(^|\/)$/, '$1index.html')
    if (!existsSync(path.join(folder, target))) return true
    return hash !== '' && headings.get(target)?.has(decodeURIComponent(hash.slice(1))) !== true
  })
  expect(broken).toEqual([])
  expect(links.length).toBeGreaterThan(1000)
})

test('every export of the package is in the reference', () => {
  const api = readFileSync(path.join(root, 'test/public-api.txt'), 'utf8')
  const exported = api
    .split(/^# /m)
    .slice(1)
    .flatMap((section) => {
      const [specifier = ''] = section.split('\n')
      return [...section.matchAll(/^export (?:abstract )?(?:interface|type|class|const|function) (\w+)/gm)].map(
        ([, name]) => ({ specifier, name: name! }),
      )
    })
  const missing = exported.filter(({ specifier, name }) => {
    const page = `reference/${specifier === 'ringfence' ? 'main' : specifier.replace('ringfence/', '')}.html`
    return pages.get(page)?.includes(` id="${name.toLowerCase()}"`) !== true
  })
  expect(missing).toEqual([])
  expect(exported.length).toBeGreaterThan(150)
})

test('the sidebar leads to every document', () => {
  const [, sidebar = ''] = pages.get('guarantees.html')!.split('class="VPSidebar"')
  const linked = new Set(
    [...sidebar.matchAll(/ href="\/([^"#]*)"/g)].map(([, href]) => href!.replace(/\/$/, '/index.html')),
  )
  const elsewhere = /^(404|all|index)\.html$|^(files|lab)\//
  expect([...pages.keys()].filter((page) => !linked.has(page) && !elsewhere.test(page))).toEqual([])
  expect(linked.size).toBeGreaterThan(80)
})

test('it can be searched, and a page of it is found', async () => {
  const page = await browser.visit(url)
  await page.keyboard.press('Control+k')
  await page.getByRole('searchbox').fill('fencing token')
  await page.getByRole('option').first().click()
  await expect.poll(() => page.url()).not.toBe(url)
  await expect.poll(() => page.locator('main h1').count()).toBeGreaterThan(0)
})

test.each([320, 768, 1920])('at a width of %i nothing is wider than the window', async (width) => {
  const page = await browser.visit(url, { viewport: { width, height: 800 } })
  for (const name of [
    '',
    'guarantees.html',
    'engines/redis.html',
    'comparison.html',
    'reference/main.html',
    'failures.html',
  ]) {
    await page.goto(url + name)
    const tooWide = 'document.documentElement.scrollWidth - document.documentElement.clientWidth'
    expect([name, await page.evaluate(tooWide)]).toEqual([name, 0])
  }
})

test('it has a dark side', async () => {
  const page = await browser.visit(url, { colorScheme: 'dark' })
  const background = String(await page.evaluate('getComputedStyle(document.body).backgroundColor'))
  const [red = 255] = background.match(/\d+/g)!.map(Number)
  expect(red).toBeLessThan(60)
})
