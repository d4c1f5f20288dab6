import { randomFillSync } from 'node:crypto'

/** The only module that draws random numbers; a simulator hands in its own. */
export interface Random {
  /** 128 random bits as 32 hexadecimal digits. */
  id(): string
  /** A number from 0 (inclusive) to 1 (exclusive), for jitter. */
  fraction(): number
}

/** A call to the system's generator costs more than all the rest of an acquisition, so bytes are drawn in bulk. */
const POOL_BYTES = 16_384
const ID_BYTES = 16
const FRACTION_BYTES = 4

const pool = Buffer.allocUnsafeSlow(POOL_BYTES)
let used = POOL_BYTES

function take(bytes: number): number {
  if (used + bytes > POOL_BYTES) {
    randomFillSync(pool)
    used = 0
  }
  used += bytes
  return used - bytes
}

export const systemRandom: Random = {
  id() {
    const offset = take(ID_BYTES)
    return pool.toString('hex', offset, offset + ID_BYTES)
  },
  fraction: () => pool.readUInt32LE(take(FRACTION_BYTES)) / 2 ** 32,
}

/** Drawn once a process: for names that others cannot guess and that stay the same, such as those of savepoints. */
export const PROCESS_NONCE = systemRandom.id()
