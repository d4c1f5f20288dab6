// node bench/lab.mjs [SECONDS] [VISITS]
// What the lab costs a browser: bytes, first paint, and frames while it plays, beside an empty page in the same minutes.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { cpus, loadavg, tmpdir } from 'node:os'
import path from 'node:path'
import { gzipSync } from 'node:zlib'
import { chromium } from 'playwright-core'
import { buildLab } from '../scripts/lab.mjs'
import { serversFolder } from '../scripts/servers/cache-folder.mjs'

const [SECONDS = 5, VISITS = 5] = process.argv.slice(2).map(Number)
/** What is played: from its beginning, and from where there is most to draw. */
const SCENES = [
  ['#free-five', '#free-five/no-guard/0'],
  ['#free-five, late', '#free-five/no-guard/5000'],
  ['#herd', '#herd/no-protocol/0'],
  ['#herd, late', '#herd/no-protocol/1600'],
]
/** Longer than one frame and a half. */
const LONG_MS = 25
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }
const EMPTY = '<!doctype html><title>empty</title><p>An empty page.'

const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-bench-lab-'))
await buildLab(folder)
const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://lab')
  const file = pathname === '/' ? 'index.html' : path.basename(pathname)
  const content = pathname === '/empty' ? EMPTY : readFileSync(path.join(folder, file))
  response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'text/html' }).end(content)
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const url = `http://127.0.0.1:${server.address().port}/`
const { version, bin, env } = JSON.parse(readFileSync(path.join(serversFolder(), 'manifest.json'), 'utf8')).chromium
const browser = await chromium.launch({
  executablePath: bin.chromium,
  env: { ...process.env, ...env, XDG_CACHE_HOME: folder },
  args: ['--no-sandbox', '--disable-gpu'],
})
const devtoolsOfBrowser = await browser.newBrowserCDPSession()
try {
  const load = loadavg()[0].toFixed(1)
  console.log(`Chromium ${version}, headless, without a graphics card, ${cpus().length} processors, load ${load}`)
  bytes()
  await firstPaints()
  console.log(`frames in ${SECONDS} s at speed 1, four clients and five nodes, window of 1440 × 900:`)
  await frames('an empty page', 'empty')
  for (const [title, address] of SCENES) await frames(title, address)
  await frames('an empty page', 'empty')
} finally {
  await browser.close()
  server.close()
  rmSync(folder, { recursive: true, force: true })
}

function bytes() {
  const sizes = readdirSync(folder)
    .filter((file) => path.extname(file) in TYPES)
    .map((file) => {
      const content = readFileSync(path.join(folder, file))
      return { file, raw: content.length, packed: gzipSync(content).length }
    })
  const sum = (of) => sizes.reduce((total, size) => total + size[of], 0)
  for (const { file, raw, packed } of [...sizes, { file: 'all', raw: sum('raw'), packed: sum('packed') }])
    console.log(`${file}: ${raw} bytes, ${packed} by gzip`)
}

function list(times) {
  const sorted = times.toSorted((a, b) => a - b)
  return `${sorted.map((time) => time.toFixed(0)).join(', ')} ms`
}

async function firstPaints() {
  const paints = { empty: [], '': [] }
  const shown = []
  for (let visit = 0; visit < VISITS; visit++)
    for (const [address, times] of Object.entries(paints)) {
      const page = await visited(address)
      times.push(
        await page.evaluate(`new Promise((done) => new PerformanceObserver((list) => {
        const paint = list.getEntriesByName('first-contentful-paint')[0]
        if (paint) done(paint.startTime)
      }).observe({ type: 'paint', buffered: true }))`),
      )
      if (address === '') shown.push(await page.evaluate('performance.getEntriesByName("shown")[0].startTime'))
      await page.context().close()
    }
  console.log(`first contentful paint of an empty page: ${list(paints.empty)}`)
  console.log(`first contentful paint of the lab: ${list(paints[''])}; the first scene was shown after ${list(shown)}`)
}

async function frames(title, address) {
  const page = await visited(address)
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  const busyMs = async () =>
    1000 * (await devtools.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration').value
  if (address !== 'empty') await page.getByRole('button', { name: 'Play' }).click()
  const [before, allBefore] = [await busyMs(), await processorMs()]
  const gaps = await page.evaluate(`new Promise((done) => {
    const gaps = []
    let last
    const next = (at) => {
      if (last !== undefined) gaps.push(at - last)
      last = at
      if (gaps.reduce((sum, gap) => sum + gap, 0) >= ${SECONDS * 1000}) return done(gaps)
      requestAnimationFrame(next)
    }
    requestAnimationFrame(next)
  })`)
  const [busy, all] = [(await busyMs()) - before, (await processorMs()) - allBefore]
  const seconds = gaps.reduce((sum, gap) => sum + gap, 0) / 1000
  const aFrame = (ms) => `${(ms / gaps.length).toFixed(1)} ms`
  const long = gaps.filter((gap) => gap > LONG_MS).length
  const goesOn = address === 'empty' || (await page.textContent('#play')) === 'Stop'
  if (!goesOn) throw new Error(`${title} was over before ${SECONDS} s were: take fewer seconds`)
  console.log(
    `  ${title}: ${(gaps.length / seconds).toFixed(1)} a second, ${long} of ${gaps.length} longer than ${LONG_MS} ms; processor time a frame ${aFrame(busy)} of the page's thread, ${aFrame(all)} of the whole browser`,
  )
  await page.context().close()
}

/** Of all of the browser's processes: what is drawn is put on the screen by others than the page's. */
async function processorMs() {
  const { processInfo } = await devtoolsOfBrowser.send('SystemInfo.getProcessInfo')
  return processInfo.reduce((sum, { cpuTime }) => sum + cpuTime * 1000, 0)
}

async function visited(address) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
  const page = await context.newPage()
  await page.goto(url + address)
  if (address !== 'empty') await page.waitForSelector('body[data-history]')
  return page
}
