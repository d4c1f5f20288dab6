// A process of a serverless platform: it serves requests as it is told, and is frozen in between or in the middle.
import { EventEmitter, once } from 'node:events'
import { connection, locked } from '../../../examples/frameworks/web/locked.mjs'
import { redisGuard } from '../../../dist/guards/index.cjs'

const told = new EventEmitter()
const guard = redisGuard(connection().client)

const POST = locked(
  () => 'order:1',
  async (lease, request) => {
    if (request.url.endsWith('/slow')) {
      process.send({ type: 'inside' })
      await once(told, 'go on')
    }
    await guard.set(lease, '{order:1}:state', request.url)
    return { token: String(lease.token) }
  },
)

async function serve({ path }) {
  const response = await POST(new Request(`http://localhost${path}`, { method: 'POST' }), {})
  process.send({ type: 'answered', status: response.status })
}

/** What `using` is there against: a lease that outlives the answer. */
async function keep() {
  const lease = await connection().locks.acquire('order:2')
  process.send({ type: 'keeps' })
  await once(told, 'look')
  process.send({ type: 'looked', held: lease.held })
  if (!lease.signal.aborted) await once(lease.signal, 'abort')
  process.send({ type: 'aborted', code: lease.signal.reason.code })
}

told.on('request', (message) => void serve(message))
told.on('keep', () => void keep())

process.on('message', (message) => told.emit(message.type, message))
process.send({ type: 'ready' })
