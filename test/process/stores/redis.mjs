import { Redis } from 'ioredis'
import { redisGuard } from '../../../dist/guards/index.cjs'

const SECTION = `redis.call('set', KEYS[1], ARGV[1]) redis.call('rpush', KEYS[2], ARGV[2])`

const keys = (account) => [`{${account}}:balance`, `{${account}}:tokens`]

export async function open() {
  const client = new Redis(process.env.REDIS_URL)
  const guard = redisGuard(client)
  const read = async (account) => Number(await client.get(keys(account)[0]))
  return {
    async create(account) {
      await client.set(keys(account)[0], 0)
    },
    async script(lease, between) {
      const [account] = lease.resources
      await guard.enter(lease)
      const balance = await read(account)
      await between()
      await guard.run(lease, SECTION, { keys: keys(account), args: [String(balance + 1), String(lease.token)] })
    },
    async unguarded(lease, between) {
      const [account] = lease.resources
      const balance = await read(account)
      await between()
      await client.eval(SECTION, 2, ...keys(account), balance + 1, String(lease.token))
    },
    async result(account) {
      return { balance: await read(account), tokens: await client.lrange(keys(account)[1], 0, -1) }
    },
  }
}
