import { execFileSync } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createFolder } from '../../harness/temporary-folder.ts'
import { addressOf, sceneOf, type Scene } from '../../lab/address.ts'
import { hashOf, play, SCENES } from '../../lab/play.ts'
import { oneBrowser } from './browser.ts'

const browser = oneBrowser()
const names = SCENES.map(({ name }) => name)
const TYPES: Readonly<Record<string, string>> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }
let folder: string
let server: Server
let url: string

beforeAll(async () => {
  folder = createFolder('lab')
  execFileSync('node', ['scripts/lab.mjs', folder], { cwd: path.resolve(import.meta.dirname, '../..'), stdio: 'pipe' })
  server = createServer((request, response) => {
    const { pathname } = new URL(request.url!, 'http://lab')
    const file = pathname === '/' ? 'index.html' : path.basename(pathname)
    response.writeHead(200, { 'content-type': TYPES[path.extname(file)]! }).end(readFileSync(path.join(folder, file)))
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
})
afterAll(async () => {
  await browser.leave()
  server.close()
  rmSync(folder, { recursive: true, force: true })
})

function sceneNamed(name: string, part: Partial<Scene> = {}): Scene {
  return { name, remedied: false, actions: [], atMs: 0, ...part }
}

/** Goes to another scene within the page, until it shows the history of that run. */
async function go(page: Page, scene: Scene): Promise<void> {
  const { history, damage = '' } = await play(scene)
  await page.evaluate((address) => {
    ;(globalThis as unknown as { location: { hash: string } }).location.hash = address
  }, addressOf(scene))
  await page.waitForSelector(`body[data-history="${hashOf(history)}"]`, { timeout: 20_000 })
  expect(await page.getAttribute('body', 'data-damage')).toBe(damage)
}

test('every scene has the same history in the page and in Node, with and without its remedy, and plays to its verdict', async () => {
  const page = await browser.visit(url)
  await page.waitForSelector('body[data-history]')
  for (const name of names) {
    for (const remedied of [false, true]) {
      await go(page, sceneNamed(name, { remedied }))
      await page.keyboard.press('End')
      await expect.poll(() => page.locator('#story [aria-current]').count(), { message: name }).toBe(1)
      expect(await page.locator('#verdicts li').count()).toBe(4)
    }
  }
})

test('a stale holder: the update is lost without the guard, and refused with it', async () => {
  const page = await browser.visit(`${url}${addressOf(sceneNamed('paused-holder', { atMs: 99_999 }))}`)
  await expect.poll(() => page.textContent('#ledger')).toContain('an update is lost')
  await expect.poll(() => page.getAttribute('[data-checker="plain store"]', 'class')).toBe('false')
  await page.getByText('with it', { exact: true }).click()
  await expect.poll(() => page.textContent('#ledger')).toContain('one of two updates would have been lost')
  await expect.poll(() => page.getAttribute('[data-checker="guarded store"]', 'class')).toBe('true')
})

test('a reader pauses a client by hand, and the address is that run', async () => {
  const page = await browser.visit(`${url}${addressOf(sceneNamed('free', { atMs: 200 }))}`)
  await page.waitForSelector('body[data-history]')
  await page.selectOption('#fault', 'pause')
  await page.selectOption('#process', '0')
  await page.getByText('Do it').click()
  await page.waitForSelector('#done li')
  const address = new URL(page.url()).hash
  expect(address).toBe('#free/without/200/pause.0.200')
  const { history } = await play(sceneOf(address, names))
  await page.waitForSelector(`body[data-history="${hashOf(history)}"]`)
  expect(history.of('pause').map(({ process, at }) => [process, at])).toEqual([['p0', 200]])
  await page.getByText('undo').click()
  await expect.poll(() => page.locator('#done li').count()).toBe(0)
})

test('it plays, stops and steps by keyboard', async () => {
  const page = await browser.visit(url)
  await page.waitForSelector('body[data-history]')
  await page.keyboard.press('ArrowRight')
  await expect.poll(() => page.locator('#story [aria-current]').count()).toBe(1)
  await page.selectOption('#speed', '8')
  await page.locator('#speed').blur()
  await page.keyboard.press(' ')
  await expect.poll(() => page.textContent('#play')).toBe('Play')
  await expect.poll(() => page.inputValue('#scrub')).toBe('1000')
})

test.each([
  '#<img src=x onerror=alert(1)>',
  '#__proto__/with/1/constructor.0.1',
  '#free/with/-1/pause.99.1/cut.0.8.5/pause.0',
  '#%00%',
])('the address %s does no harm', async (fragment) => {
  const page = await browser.visit(`${url}${fragment}`)
  await page.waitForSelector('body[data-history]')
  expect(await page.locator('img').count()).toBe(0)
})

test.each([360, 1440])('nothing is wider than a window of %d', async (width) => {
  const page = await browser.visit(url, { viewport: { width, height: 800 } })
  await page.waitForSelector('body[data-history]')
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width)
})
