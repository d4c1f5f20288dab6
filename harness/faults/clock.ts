import { closeSync, openSync, writeSync } from 'node:fs'
import path from 'node:path'
import { server } from '../binaries.ts'
import { giveToServer } from '../temporary-folder.ts'

export interface ShiftedClock {
  /** What the server's environment needs. */
  env: Record<string, string>
  /** Sets how far the server's wall clock is ahead (or, negative, behind). The server follows at once. */
  shift: (offsetMs: number) => void
}

/** The preload library for one server, and the file from which it reads the offset. */
export function shiftedClock(folder: string): ShiftedClock {
  const { library } = server('clock-shift')
  if (library === undefined) throw new Error('the manifest names no clock library: run `npm run servers`')
  const file = path.join(folder, 'clock-offset')
  const shift = (offsetMs: number): void => {
    const bytes = Buffer.alloc(8)
    bytes.writeBigInt64LE(BigInt(Math.trunc(offsetMs)))
    // Not truncated on opening: the server has the page mapped and would read past the end.
    const descriptor = openSync(file, 'r+')
    writeSync(descriptor, bytes, 0, bytes.length, 0)
    closeSync(descriptor)
  }
  closeSync(openSync(file, 'w'))
  giveToServer(file)
  shift(0)
  return { env: { LD_PRELOAD: library, RINGFENCE_CLOCK_SHIFT: file }, shift }
}
