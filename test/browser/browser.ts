import { rmSync } from 'node:fs'
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { program } from '../../harness/binaries.ts'
import { createFolder } from '../../harness/temporary-folder.ts'

export interface VisitOptions extends BrowserContextOptions {
  /** Complaints of the browser that belong to the test, such as that a server which was stopped cannot be reached. */
  expected?: RegExp
}

export interface Visitor {
  /** Opens an address in a browser without a past. After the test, whatever the browser complained about fails it. */
  visit(url: string, options?: VisitOptions): Promise<Page>
  /** Closes what is open: before the servers go, or the pages would complain of that. */
  leave(): Promise<void>
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
]

/** One browser for the tests of a file, with a new context for each visit. */
export function oneBrowser(): Visitor {
  let browser: Browser
  let cache: string
  const contexts: BrowserContext[] = []
  let complaints: string[] = []

  beforeAll(async () => {
    cache = createFolder('browser')
    browser = await openBrowser(cache)
  })
  const leave = async (): Promise<void> => {
    await Promise.all(contexts.splice(0).map((context) => context.close()))
  }
  afterEach(async () => {
    await leave()
    const heard = complaints
    complaints = []
    expect(heard).toEqual([])
  })
  afterAll(async () => {
    await browser?.close()
    rmSync(cache, { recursive: true, force: true })
  })

  return {
    async visit(url, { expected, ...options } = {}) {
      const context = await browser.newContext(options)
      contexts.push(context)
      const page = await context.newPage()
      listen(page, new URL(url).origin, (complaint) => {
        if (expected?.test(complaint) !== true) complaints.push(complaint)
      })
      await page.goto(url)
      return page
    },
    leave,
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

function listen(page: Page, origin: string, complain: (complaint: string) => void): void {
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complain(`console: ${message.text()}`)
  })
  page.on('pageerror', (error) => complain(`exception: ${error.message}`))
  page.on('dialog', (dialog) => {
    complain(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on('request', (request) => {
    const url = request.url()
    if (!url.startsWith(`${origin}/`) && !url.startsWith('data:')) complain(`request: ${url}`)
  })
}

function definedOnly(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined))
}
