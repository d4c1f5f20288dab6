import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../../harness/until.ts'
import { oneBrowser } from './browser.ts'

const browser = oneBrowser()
let body = ''

const server = createServer((request, response) => {
  const isWorker = request.url === '/worker.js'
  response.writeHead(200, { 'content-type': isWorker ? 'text/javascript' : 'text/html' })
  response.end(isWorker ? `fetch('${OTHER}')` : `<!doctype html><link rel="icon" href="data:,">${body}`)
})
const OTHER = 'http://elsewhere.invalid/'

beforeAll(() => new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve)))
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

test.each([
  ['an image', `<img src="${OTHER}">`],
  ['a script', `<script src="${OTHER}"></script>`],
  [
    'a font of a style sheet',
    `<style>@font-face { font-family: x; src: url(${OTHER}) } p { font-family: x }</style><p>x`,
  ],
  ['a frame', `<iframe src="${OTHER}"></iframe>`],
  ['fetch', `<script>fetch('${OTHER}')</script>`],
  ['a beacon', `<script>navigator.sendBeacon('${OTHER}')</script>`],
  ['a worker', '<script>new Worker("worker.js")</script>'],
  ['a window', `<script>open('${OTHER}')</script>`],
  ['a WebSocket', `<script>new WebSocket('${OTHER.replace('http', 'ws')}')</script>`],
  ['another port of this machine', '<img src="http://127.0.0.1:1/">'],
])('a request to another host fails the test, whatever it expects: %s', async (_what, page) => {
  body = page
  await browser.visit(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`, { expected: /./ })
  const heard: string[] = []
  const told = (): boolean => heard.push(...browser.complaints()) > 0
  await until(told, { what: 'the request is noticed' })
  await browser.leave()
  heard.push(...browser.complaints())
  expect(new Set(heard)).toEqual(
    new Set([expect.stringMatching(/^request: (http|ws):\/\/(elsewhere\.invalid|127\.0\.0\.1:1)\/$/)]),
  )
})
