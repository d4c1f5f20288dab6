import { readFileSync } from 'node:fs'

/**
 * The retry delays that serve the pollers best, from the kept sweep (sweep.mjs). With jitter, rare attempts win, because they
 * leave the servers to those who have the lock; without, waiters ask all at once, and the lock lies idle until they ask again.
 *
 * @typedef {{ library: string, processes: number, waiters: number, nodes: number, retryMs: number, perSecond: number }} Tried
 */

/** @type {{ rows: Tried[] }} */
const sweep = JSON.parse(readFileSync(new URL('results/sweep.json', import.meta.url), 'utf8'))

/** For that many processes on that many nodes; for what was not tried, that of one process. @param {string} library */
export function bestDelay(library, processes, nodes) {
  const tried = sweep.rows.filter((row) => row.library === library && row.nodes === nodes)
  const alike = tried.filter((row) => row.processes === processes)
  return best(alike.length > 0 ? alike : tried.filter((row) => row.processes === 1)).retryMs
}

/** @param {readonly Tried[]} rows */
export function best(rows) {
  return rows.reduce((first, row) => (row.perSecond > first.perSecond ? row : first))
}
