import { createHash } from 'node:crypto'
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'
import path from 'node:path'
import { server } from '../binaries.ts'
import { giveToServer } from '../temporary-folder.ts'

export interface ShiftedClock {
  /** What the server's environment needs. */
  env: Record<string, string>
  /** Sets how far the server's wall clock is ahead (or, negative, behind). The server follows at once. */
  shift: (offsetMs: number) => void
  /** Makes it stand still at this time (ms since 1970), until it is called again. */
  stop: (wallMs: number) => void
}

/** The preload library for one server, and the file from which it reads what its clock is to show. */
export function shiftedClock(folder: string): ShiftedClock {
  const { library, version } = server('clock-shift')
  if (library === undefined) throw new Error('the manifest names no clock library: run `npm run servers`')
  const file = path.join(folder, 'clock-offset')
  const write = (value: number, at: number): void => {
    const bytes = Buffer.alloc(8)
    bytes.writeBigInt64LE(BigInt(Math.trunc(value)))
    // Not truncated on opening: the server has the page mapped and would read past the end.
    const descriptor = openSync(file, 'r+')
    writeSync(descriptor, bytes, 0, bytes.length, at)
    closeSync(descriptor)
  }
  const shift = (offsetMs: number): void => write(offsetMs, 0)
  const stop = (wallMs: number): void => {
    if (!isOfThisSource(version))
      throw new Error('the clock library is another version: run `npm run servers -- clock-shift`')
    write(wallMs * 1000, 8)
  }
  closeSync(openSync(file, 'w'))
  giveToServer(file)
  shift(0)
  write(0, 8)
  return { env: { LD_PRELOAD: library, RINGFENCE_CLOCK_SHIFT: file }, shift, stop }
}

/** An earlier one shifts a clock, too, but cannot stop it. */
function isOfThisSource(version: string): boolean {
  source ??= createHash('sha256')
    .update(readFileSync(new URL('./clock-shift.c', import.meta.url)))
    .digest('hex')
  return source.startsWith(version)
}

let source: string | undefined
