import { existsSync, statfsSync } from 'node:fs'

const FOLDER = '/dev/shm'
/** All servers of a run of tests need less. */
const ROOM_BYTES = 2 ** 30

/**
 * From now on servers of this process keep their data in memory, where there is room. Nothing in a schedule depends on a disk, and waiting
 * for one is most of the time that a request takes.
 */
export function useMemory(): void {
  if (!existsSync(FOLDER)) return
  const { bavail, bsize } = statfsSync(FOLDER)
  if (bavail * bsize >= ROOM_BYTES) process.env['TMPDIR'] = FOLDER
}
