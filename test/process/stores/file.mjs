import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { fileGuard } from '../../../dist/guards/index.cjs'

const next = ({ balance, tokens }, { token }) =>
  JSON.stringify({ balance: balance + 1, tokens: [...tokens, String(token)] })

export async function open() {
  const folder = process.env.FILE_FOLDER
  const guard = fileGuard(`${folder}/fences.db`)
  const pathOf = (account) => `${folder}/${account}.json`
  const read = (account) => JSON.parse(readFileSync(pathOf(account), 'utf8'))
  return {
    async create(account) {
      writeFileSync(pathOf(account), JSON.stringify({ balance: 0, tokens: [] }))
    },
    async replace(lease, between) {
      const [account] = lease.resources
      await guard.enter(lease)
      const before = read(account)
      await between()
      await guard.replace(lease, pathOf(account), next(before, lease))
    },
    async unguarded(lease, between) {
      const [account] = lease.resources
      const before = read(account)
      await between()
      writeFileSync(`${pathOf(account)}.${process.pid}`, next(before, lease))
      renameSync(`${pathOf(account)}.${process.pid}`, pathOf(account))
    },
    result: async (account) => read(account),
  }
}
