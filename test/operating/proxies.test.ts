import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { program } from '../../harness/binaries.ts'
import { Home, type Command } from '../../harness/command.ts'
import { onFreePorts } from '../../harness/ports.ts'
import { Server } from '../../harness/process.ts'
import { createFolder, giveToServer } from '../../harness/temporary-folder.ts'

const PAGES = path.resolve(import.meta.dirname, '../../docs/operating')
const TOKEN = 'a-token-that-is-long-enough'
const home = new Home({ RINGFENCE_DASHBOARD_TOKEN: TOKEN })
let dashboard: Command
let port: string

beforeAll(async () => {
  const url = `file:${home.file('locks.db')}`
  dashboard = home.start([
    'dashboard',
    '--engine',
    url,
    '--listen',
    '0',
    '--path',
    '/locks',
    '--origin',
    'https://ops.example.org',
  ])
  port = await dashboard.printed(/127\.0\.0\.1:(\d+)/)
})
afterAll(() => home[Symbol.asyncDispose]())

type Configured = (listen: number, upstream: string) => string
const file = (name: string): string => readFileSync(path.join(PAGES, name), 'utf8')

const nginx: Configured = (listen, upstream) => `daemon off; master_process off; pid nginx.pid; error_log stderr;
  events {}
  http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    server { listen 127.0.0.1:${listen}; ${file('nginx.conf').replace('127.0.0.1:7464', upstream)} } }`
const caddy: Configured = (listen, upstream) =>
  `{\n\tadmin off\n\tauto_https off\n}\n${file('Caddyfile')
    .replace('ops.example.org', `http://127.0.0.1:${listen}`)
    .replace('127.0.0.1:7464', upstream)}`

async function start(name: 'nginx' | 'caddy', configured: Configured): Promise<{ url: string; server: Server }> {
  return onFreePorts(1, async ([listen = 0]) => {
    const folder = createFolder(name)
    const config = path.join(folder, 'config')
    writeFileSync(config, configured(listen, `127.0.0.1:${port}`))
    giveToServer(config)
    const { path: binary, env } = program(name)
    const args =
      name === 'nginx'
        ? ['-p', folder, '-c', config, '-e', 'stderr']
        : ['run', '--config', config, '--adapter', 'caddyfile']
    const url = `http://127.0.0.1:${listen}/locks`
    const server = await Server.start({
      name: `${name}:${listen}`,
      folder,
      command: {
        path: binary,
        args,
        env: { ...env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
        cwd: folder,
      },
      port: listen,
      ready: async () => (await fetch(url)).status > 0,
    })
    return { url, server }
  })
}

async function readUntil(response: Response, pattern: RegExp): Promise<string> {
  let text = ''
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk
    if (pattern.test(text)) return text
  }
  throw new Error(`the events ended without ${pattern}: ${text}`)
}

test.each([
  ['nginx', nginx],
  ['caddy', caddy],
] as const)('the dashboard is read through %s, with its events one by one', async (name, configured) => {
  const { url, server } = await start(name, configured)
  try {
    const headers = { authorization: `Bearer ${TOKEN}` }
    expect((await fetch(`${url}/events`)).status).toBe(401)
    const events = await fetch(`${url}/events`, { headers })
    expect([events.status, events.headers.get('content-type')]).toEqual([200, 'text/event-stream'])
    const holder = home.start(['run', '--engine', `file:${home.file('locks.db')}`, `seen-${name}`, '--', 'sleep', '60'])
    expect(await readUntil(events, new RegExp(`seen-${name}`))).toContain(`seen-${name}`)
    await holder.kill()
  } finally {
    await server.stop()
  }
})
