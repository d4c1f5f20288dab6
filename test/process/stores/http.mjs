import { fencingHeaders, StaleTokenError } from '../../../dist/guards/index.cjs'

const url = (account) => `${process.env.HTTP_URL}/${encodeURIComponent(account)}`

async function get(account) {
  return (await fetch(url(account))).json()
}

async function put(account, body, headers) {
  const response = await fetch(url(account), { method: 'PUT', headers, body: JSON.stringify(body) })
  const answer = await response.text()
  if (response.status === 412) {
    const { resource, token, seen } = JSON.parse(answer)
    throw new StaleTokenError([resource], BigInt(token), BigInt(seen))
  }
  if (response.status !== 204) throw new Error(`${response.status} ${answer}`)
}

export async function open() {
  return {
    async create(account) {
      await put(account, { balance: 0 }, {})
    },
    /** A request that writes nothing enters; the service guards its own write too. */
    async requests(lease, between) {
      const [account] = lease.resources
      await put(account, {}, fencingHeaders(lease))
      const { balance } = await get(account)
      await between()
      await put(account, { balance: balance + 1, token: String(lease.token) }, fencingHeaders(lease))
    },
    async unguarded(lease, between) {
      const [account] = lease.resources
      const { balance } = await get(account)
      await between()
      await put(account, { balance: balance + 1, token: String(lease.token) }, {})
    },
    result: get,
  }
}
