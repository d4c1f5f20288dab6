import type { LeaseChanges, LeaseRow } from '../protocol.ts'

const rows = new Map<string, LeaseRow>()
const list = document.querySelector('#leases')!

new EventSource('./events').addEventListener('leases', (event: MessageEvent<string>) => {
  const changes = JSON.parse(event.data) as LeaseChanges
  if (changes.reset) rows.clear()
  for (const row of changes.set) rows.set(row.resource, row)
  for (const resource of changes.gone) rows.delete(resource)
  if (changes.more) return
  list.replaceChildren(
    ...[...rows.values()].map(({ resource, label, owner, token }) => {
      const item = document.createElement('li')
      item.textContent = `${resource}: ${label ?? owner}, token ${token}`
      return item
    }),
  )
})
