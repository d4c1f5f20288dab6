// What a platform does with the handler: REDIS_URL=redis://127.0.0.1:6379 PORT=3000 node examples/frameworks/web/serve.mjs
import { createServer } from 'node:http'
import { connection } from './locked.mjs'
import { POST } from './route.mjs'

async function serve(incoming, outgoing) {
  const gone = new AbortController()
  outgoing.once('close', () => gone.abort(new Error('the client is gone')))
  const { pathname } = new URL(incoming.url, 'http://localhost')
  const request = new Request(`http://localhost${pathname}`, { method: 'POST', signal: gone.signal })
  const response = await POST(request, { params: Promise.resolve({ id: pathname.split('/')[2] }) })
  outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(await response.text())
}

const server = createServer((incoming, outgoing) => void serve(incoming, outgoing))
server.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listening'))
process.once('SIGTERM', () => {
  const { locks, client } = connection()
  server.close(() => void locks.close().finally(() => client.disconnect()))
  server.closeIdleConnections()
})
