// In Next.js: app/orders/[id]/charge/route.js
import { redisGuard } from 'ringfence/guard'
import { connection, locked } from './locked.mjs'

export const POST = locked(
  async (_request, { params }) => `order:${(await params).id}`,
  async (lease, _request, { params }) => {
    const { id } = await params
    // The store refuses a process that was frozen for too long.
    await redisGuard(connection().client).set(lease, `{order:${id}}:state`, 'charged')
    return { charged: id, token: String(lease.token) }
  },
)
