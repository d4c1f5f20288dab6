import { casGuard, objectStore } from '../../../dist/guards/index.cjs'

const url = (account) => `${process.env.OBJECTS_URL}/${encodeURIComponent(account)}`
const next = ({ balance, tokens }, { token }) => ({ balance: balance + 1, tokens: [...tokens, String(token)] })

export async function open() {
  const guard = casGuard(objectStore({ url }))
  const read = async (account) => (await fetch(url(account))).json()
  return {
    async create(account) {
      await fetch(url(account), { method: 'PUT', body: JSON.stringify({ balance: 0, tokens: [] }) })
    },
    async object(lease, between) {
      const [account] = lease.resources
      await guard.enter(lease)
      const before = await read(account)
      await between()
      await guard.write(lease, account, () => Buffer.from(JSON.stringify(next(before, lease))))
    },
    async unguarded(lease, between) {
      const [account] = lease.resources
      const before = await read(account)
      await between()
      await fetch(url(account), { method: 'PUT', body: JSON.stringify(next(before, lease)) })
    },
    result: read,
  }
}
