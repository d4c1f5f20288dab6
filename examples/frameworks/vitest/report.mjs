// What is tested: a report of three pages that stops when its lease is lost. The locks are handed in.
export async function sendReport(locks, sendPage) {
  const lease = await locks.tryAcquire('report', { ttl: '30s' })
  if (lease === null) return 'someone else sends it'
  try {
    for (const page of [1, 2, 3]) {
      lease.assertHeld()
      await sendPage(page)
    }
    return 'sent'
  } finally {
    // After an outage the release is unknown too, and the lease ends with its ttl.
    await lease.release().catch(() => false)
  }
}
