/**
 * The ways to add one to a balance that both SQL stores have. `read` and `write` are their own statements, on the pool or on a
 * transaction.
 */
export function sections(guard, pool, { read, write }) {
  return {
    async transaction(lease, between) {
      const [account] = lease.resources
      await guard.enter(lease)
      const balance = await read(pool, account)
      await between()
      await guard.transaction(lease, (tx) => write(tx, account, balance + 1, lease.token))
    },
    /** Stopped in the middle of the transaction, with the fence locked. */
    async inside(lease, between) {
      const [account] = lease.resources
      await guard.transaction(lease, async (tx) => {
        const balance = await read(tx, account)
        await between()
        await write(tx, account, balance + 1, lease.token)
      })
    },
    async unguarded(lease, between) {
      const [account] = lease.resources
      const balance = await read(pool, account)
      await between()
      await write(pool, account, balance + 1, lease.token)
    },
  }
}
