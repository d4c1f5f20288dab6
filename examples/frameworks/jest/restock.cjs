// What is tested: an item that has run out is ordered once, however many notice it. The locks are handed in.
exports.restock = (locks, stock, item) =>
  locks.using(`stock:${item}`, { wait: '5s' }, async (lease) => {
    if ((await stock.count(item)) > 0) return 'there is some'
    await stock.order(item, lease.signal)
    return 'ordered'
  })
