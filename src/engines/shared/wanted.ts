/**
 * How long an exclusive request that waits keeps later shared requests out, on an engine without a queue of its own. It comes again
 * within `COME_AGAIN_MS`, so only a writer that gave up or died keeps readers out for nothing, and no longer than this.
 */
export const WANTED_MS = 3000

/** After this time at the latest, a waiting writer that is refused because of readers makes its next attempt. */
export const COME_AGAIN_MS = WANTED_MS / 3
