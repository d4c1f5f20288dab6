import { request } from 'node:http'
import { afterAll, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { Home } from '../../../harness/command.ts'

const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

test.each(['SIGTERM', 'SIGINT'] as const)('it serves the page on this machine until %s', async (signal) => {
  const command = home.start(['lab', '--listen', '0'])
  const at = await command.printed(/^the lab is at (http:\/\/127\.0\.0\.1:\d+\/)\n/)
  const page = await fetch(at)
  expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
  const text = await page.text()
  const files = [...text.matchAll(/ (?:src|href)="([^":]+)"/g)].map(([, file]) => file!)
  expect(files.sort()).toEqual(['lab.css', 'lab.js'])
  for (const file of files) expect((await fetch(at + file)).status).toBe(200)
  command.signal(signal)
  expect(await command.ended).toMatchObject({ code: EXIT.ok, signal: null, stderr: '' })
  await expect(fetch(at)).rejects.toThrow('fetch failed')
})

test('it has its three files and nothing else, and is only read', async () => {
  const command = home.start(['lab', '--listen', '[::1]:0', '--json'])
  await command.printed(/\n/)
  const { url } = JSON.parse(await command.printed(/(\{.*\})\n/)) as { url: string }
  expect(url).toMatch(/^http:\/\/\[::1\]:\d+\/$/)
  for (const path of ['/package.json', '/lab.js/', '//lab.js', '/../package.json', '/..%2f..%2fpackage.json', '/%00'])
    expect([path, await statusOf(url, path)]).toEqual([path, 404])
  expect(await statusOf(url, '/?seed=1')).toBe(200)
  expect(await statusOf(url, '/', 'HEAD')).toBe(200)
  expect(await statusOf(url, '/', 'POST')).toBe(405)
  command.signal('SIGTERM')
  expect(await command.ended).toMatchObject({ code: EXIT.ok })
})

/** With the path as it stands: a URL would be tidied before it is sent. */
function statusOf(url: string, path: string, method = 'GET'): Promise<number> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    request({ host: hostname.replaceAll(/[[\]]/g, ''), port, path, method }, (response) => {
      response.resume()
      resolve(response.statusCode!)
    })
      .on('error', reject)
      .end()
  })
}

test.each([
  [['--listen', '0.0.0.0:0'], '0.0.0.0 is open to others'],
  [['--listen', 'nonsense'], "expected PORT or HOST:PORT, got 'nonsense'"],
  [['a-name'], "lab: expected no names, got 'a-name'"],
  [['--engine', 'redis://a'], '--engine'],
])('lab %j is wrong usage', async (args, message) => {
  const { code, stdout, stderr } = await home.run(['lab', ...args])
  expect([code, stdout]).toEqual([EXIT.usage, ''])
  expect(stderr).toContain(message)
})

test('a port that is taken is a failure with a next step', async () => {
  const first = home.start(['lab', '--listen', '0'])
  const port = await first.printed(/127\.0\.0\.1:(\d+)/)
  const { code, stderr } = await home.run(['lab', '--listen', port])
  expect(code).toBe(EXIT.failed)
  expect(stderr).toContain('--listen HOST:PORT takes another')
  first.signal('SIGTERM')
  expect(await first.ended).toMatchObject({ code: EXIT.ok })
})
