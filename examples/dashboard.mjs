// The dashboard in a server of your own, behind its own login.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { createLocks } from 'ringfence'
import { dashboard } from 'ringfence/dashboard'
import { memory } from 'ringfence/memory'

const engine = memory()
const page = dashboard(engine, {
  path: '/ops/locks',
  auth: (request) => (request.headers.get('x-user') === 'ada' ? { role: 'write', name: 'ada' } : 'none'),
  onAudit: ({ who, action, resource, outcome }) => console.log(`audit: ${who}: ${action} ${resource}: ${outcome}`),
})
const locks = createLocks(engine, { label: 'worker-1', observe: page.observe })
const server = createServer((request, response) => {
  if (request.url?.startsWith('/ops/locks')) return page.listener(request, response)
  response.end('your own pages')
}).listen(0, '127.0.0.1')
await once(server, 'listening')
const at = `http://127.0.0.1:${server.address().port}/ops/locks`

const lease = await locks.acquire('order:42')
const headers = { 'x-user': 'ada', origin: new URL(at).origin, 'content-type': 'application/json' }
console.log('a stranger:', (await fetch(`${at}/`)).status)
console.log('ada:', (await fetch(`${at}/`, { headers })).status)

const body = JSON.stringify({ resource: 'order:42', token: String(lease.token) })
console.log(await (await fetch(`${at}/release`, { method: 'POST', headers, body })).json())
const { entries } = await (await fetch(`${at}/history?resource=order:42`, { headers })).json()
console.log(entries.map(({ type, label }) => `${type} (${label})`).join(' <- '))

await page.close()
server.closeAllConnections()
server.close()
await locks.close()
