import { execFileSync } from 'node:child_process'
import { createReadStream, existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createFolder } from '../../harness/temporary-folder.ts'
import { SCENES } from '../../lab/scenes.ts'
import { oneBrowser, type VisitOptions } from './browser.ts'

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
    // The fragment of the lab is a scene.
    if (target === 'lab/index.html') return hash !== '' && SCENES.every(({ name }) => hash !== `#${name}`)
    return hash !== '' && headings.get(target)?.has(decodeURIComponent(hash.slice(1))) !== true
  })
  expect(broken).toEqual([])
  expect(links.length).toBeGreaterThan(1000)
})

/** What makes a browser ask another host, in pages, styles, pictures and scripts. */
const LOADS = [
  /<(?:script|img|iframe|source|video|audio|embed|object|link|image|use)\b[^>]*?\s(?:src|srcset|href|data)=["']?\s*(?:https?:)?\/\/[^"'\s>]*/gi,
  /(?:\burl\(\s*["']?|@import\s+["']|\bimport\(?\s*["'])\s*(?:https?:)?\/\/[^"'`\s)]*/gi,
]

test('no file of it loads anything from another host', () => {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\.(html|css|js|svg)$/.test(file),
  )
  const found = files.flatMap((file) => {
    const text = readFileSync(path.join(folder, file), 'utf8')
    return LOADS.flatMap((loads) => text.match(loads) ?? [])
  })
  // VitePress's own, for links to social networks whose icon it does not have. The site has no such links.
  expect(found.map((load) => new URL(load.slice(load.indexOf('http'))).host)).toEqual(['api.iconify.design'])
  expect([...pages].filter(([, text]) => text.includes('VPSocialLink'))).toEqual([])
  expect(files.length).toBeGreaterThan(200)
})

/** What the reference says of an export, between its heading and its declaration. */
function said({ specifier, name }: { specifier: string; name: string }): string {
  const page = `reference/${specifier === 'ringfence' ? 'main' : specifier.replace('ringfence/', '')}.html`
  const [, part = ''] = pages.get(page)!.split(` id="${name.toLowerCase()}"`)
  const [, sentence = ''] = /<\/h3>([\s\S]*?)<div class="language-/.exec(part) ?? []
  return sentence.replaceAll(/<[^>]*>/g, '').trim()
}

test('every export of the package is in the reference, with a sentence about it', () => {
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
  expect(exported.filter((one) => !/\w \w/.test(said(one)))).toEqual([])
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

/** A page of the site, once its scripts listen to keys and fingers. */
async function alive(address: string, options?: VisitOptions): Promise<Page> {
  const page = await browser.visit(address, options)
  await page.waitForFunction("document.querySelector('#app').__vue_app__ !== undefined")
  return page
}

test.each([
  ['fencing token', /^\/(fencing|guarantees)\.html/],
  ['stuck lock', /^\/operating\/stuck\.html/],
  ['redlock migration', /^\/(migrating\/redlock|redlock-drop-in)\.html/],
])('a search for “%s” leads to the page about it', async (question, answer) => {
  const page = await alive(url)
  await page.keyboard.press('Control+k')
  await page.getByRole('searchbox').fill(question)
  await page.getByRole('option').first().click()
  await expect.poll(() => new URL(page.url()).pathname).toMatch(answer)
  await expect.poll(() => page.locator('main h1').count()).toBeGreaterThan(0)
})

test('on a phone, a tap opens the menu, the list of pages and the search', async () => {
  const phone = { viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true }
  const page = await alive(`${url}guarantees.html`, phone)
  await page.getByRole('button', { name: 'mobile navigation' }).tap()
  await page.locator('.VPNavScreen').getByRole('link', { name: 'Operating' }).tap()
  await expect.poll(() => new URL(page.url()).pathname).toBe('/operating/')
  await page.getByRole('button', { name: 'Menu', exact: true }).tap()
  await page.locator('.VPSidebar').getByRole('link', { name: 'Fencing and guards' }).tap()
  await expect.poll(() => new URL(page.url()).pathname).toBe('/fencing.html')
  await page.getByRole('button', { name: 'Search' }).tap()
  await page.getByRole('searchbox').fill('stuck lock')
  await page.getByRole('option').first().tap()
  await expect.poll(() => new URL(page.url()).pathname).toBe('/operating/stuck.html')
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

test('a failure has pictures, and leads to the lab, where it plays', async () => {
  const page = await browser.visit(`${url}failures.html`)
  const pictures = page.locator('main img')
  expect(await pictures.count()).toBeGreaterThanOrEqual(2 * SCENES.filter(({ remedies }) => remedies.length > 0).length)
  const broken = 'Array.from(document.images).filter((image) => image.complete && image.naturalWidth === 0).length'
  expect(await page.evaluate(broken)).toBe(0)
  await page.getByRole('link', { name: 'Play it in the lab' }).nth(1).click()
  await page.waitForSelector('body[data-history]')
  expect(new URL(page.url()).hash).toBe('#delete-of-anothers')
  expect(await page.textContent('#title')).toBe('Delete of another’s lock')
  await page.getByRole('link', { name: 'About the lab' }).click()
  await expect.poll(() => page.getByRole('link', { name: 'Play it' }).count()).toBe(10)
})

test('it has a dark side', async () => {
  const page = await browser.visit(url, { colorScheme: 'dark' })
  const background = String(await page.evaluate('getComputedStyle(document.body).backgroundColor'))
  const [red = 255] = background.match(/\d+/g)!.map(Number)
  expect(red).toBeLessThan(60)
})
