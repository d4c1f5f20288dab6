import { methodsOrThrow } from './arguments.ts'
import { nodeCrypto } from './platform.ts'

/** Draws random numbers. A simulator hands in one of its own. */
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

const bytes = new Uint8Array(POOL_BYTES)
const pool = new DataView(bytes.buffer)
let used = POOL_BYTES

function take(count: number): number {
  if (used + count > POOL_BYTES) {
    const { randomFillSync } = nodeCrypto() ?? {}
    if (randomFillSync === undefined) crypto.getRandomValues(bytes)
    else randomFillSync(bytes)
    used = 0
  }
  used += count
  return used - count
}

export const systemRandom: Random = {
  id() {
    const offset = take(ID_BYTES)
    let digits = ''
    for (let at = offset; at < offset + ID_BYTES; at += 4) digits += pool.getUint32(at).toString(16).padStart(8, '0')
    return digits
  },
  fraction: () => pool.getUint32(take(FRACTION_BYTES)) / 2 ** 32,
}

/** The option `random`. Default: the system's. */
export function randomOrThrow(random: unknown): Random {
  if (random === undefined) return systemRandom
  methodsOrThrow(random, 'random', ['id', 'fraction'])
  return random as Random
}

let nonce: string | undefined

/** Drawn once a process: for names that others cannot guess and that stay the same, such as those of savepoints. */
export function processNonce(): string {
  return (nonce ??= systemRandom.id())
}
