import { rmSync } from 'node:fs'
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { program } from '../../harness/binaries.ts'
import { createFolder } from '../../harness/temporary-folder.ts'

export interface VisitOptions extends BrowserContextOptions {
  /** Complaints of the browser that belong to the test, such as that a server which was stopped cannot be reached. Never a request to another host. */
  expected?: RegExp
}

export interface Visitor {
  /** Opens an address in a browser without a past. After the test, whatever the browser complained about fails it. */
  visit(url: string, options?: VisitOptions): Promise<Page>
  /** Closes what is open: before the servers go, or the pages would complain of that. */
  leave(): Promise<void>
  /** What the browser has complained about so far. It does not fail the test any more. */
  complaints(): string[]
}

const ARGS = [
  // Tests may run as root and in containers, where Chromium cannot build its sandbox. It sees pages of our own alone.
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  // No other host is ever reached, whatever a page asks for.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
]

/** One browser for the tests of a file, with a new context for each visit. */
export function oneBrowser(): Visitor {
  let browser: Browser
  let cache: string
  const contexts: BrowserContext[] = []
  const complaints: string[] = []

  beforeAll(async () => {
    cache = createFolder('browser')
    browser = await openBrowser(cache)
  })
  const leave = async (): Promise<void> => {
    await Promise.all(contexts.splice(0).map((context) => context.close()))
  }
  afterEach(async () => {
    await leave()
    expect(complaints.splice(0)).toEqual([])
  })
  afterAll(async () => {
    await browser?.close()
    rmSync(cache, { recursive: true, force: true })
  })

  return {
    async visit(url, { expected, ...options } = {}) {
      const context = await browser.newContext(options)
      contexts.push(context)
      watchRequests(context, new URL(url).origin, (complaint) => complaints.push(complaint))
      const page = await context.newPage()
      listen(page, (complaint) => {
        if (expected?.test(complaint) !== true) complaints.push(complaint)
      })
      await page.goto(url)
      return page
    },
    leave,
    complaints: () => complaints.splice(0),
  }
}

function openBrowser(cache: string): Promise<Browser> {
  const { path, env } = program('chromium')
  return chromium.launch({
    executablePath: path,
    env: { ...definedOnly(process.env), ...env, XDG_CACHE_HOME: cache },
    args: ARGS,
  })
}

/** Of the page, its workers and the windows that it opens. */
function watchRequests(context: BrowserContext, origin: string, complain: (complaint: string) => void): void {
  const look = (url: string, ours: string): void => {
    if (!url.startsWith(`${ours}/`) && !url.startsWith('data:')) complain(`request: ${url}`)
  }
  context.on('request', (request) => look(request.url(), origin))
  context.on('page', (page) => {
    page.on('websocket', (socket) => look(socket.url(), origin.replace('http', 'ws')))
  })
}

function listen(page: Page, complain: (complaint: string) => void): void {
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complain(`console: ${message.text()}`)
  })
  page.on('pageerror', (error) => complain(`exception: ${error.message}`))
  page.on('dialog', (dialog) => {
    complain(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
}

function definedOnly(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined))
}
