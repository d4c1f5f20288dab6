import { machineClock, type MachineClock } from '../../clock.ts'
import { EngineError, messageOf } from '../../errors.ts'

/** The part of the C library that is called. */
interface ClockLibrary {
  readonly clock_gettime: (clock: number, time: BigInt64Array) => number
}

/** `bun:ffi` and `Deno` have no types here. */
interface BunFfi {
  dlopen(name: string, symbols: object): { readonly symbols: ClockLibrary }
}
type DenoGlobal = BunFfi

/** Of Linux; other systems have other numbers. */
const CLOCK_MONOTONIC = 1

const LIBRARIES = ['libc.so.6', `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`]

/**
 * The machine's clock on every runtime. `process.hrtime` of Node is the time since boot. That of Bun and Deno is the time since the
 * process began, which means nothing to another process: there the kernel is asked, for what Node reads.
 */
export function bootClock(): MachineClock {
  const { bun, deno } = process.versions
  if (bun === undefined && deno === undefined) return machineClock
  let read: (() => number) | undefined
  return { ...machineClock, machineMs: () => (read ??= kernelClock())() }
}

function kernelClock(): () => number {
  const { clock_gettime } = openLibrary()
  const time = new BigInt64Array(2)
  return () => {
    if (clock_gettime(CLOCK_MONOTONIC, time) !== 0) throw unknownTime('clock_gettime has failed')
    const [seconds, nanoseconds] = time
    return Number(seconds) * 1000 + Number(nanoseconds) / 1e6
  }
}

function openLibrary(): ClockLibrary {
  if (process.platform !== 'linux') throw unknownTime(`there is no way to do so on ${process.platform}`)
  const { Deno } = globalThis as { Deno?: DenoGlobal }
  let cause: unknown
  for (const name of LIBRARIES) {
    try {
      if (Deno !== undefined)
        return Deno.dlopen(name, { clock_gettime: { parameters: ['i32', 'buffer'], result: 'i32' } }).symbols
      const ffi = process.getBuiltinModule('bun:ffi') as unknown as BunFfi
      return ffi.dlopen(name, { clock_gettime: { args: ['i32', 'ptr'], returns: 'i32' } }).symbols
    } catch (error) {
      cause ??= error
    }
  }
  throw unknownTime(messageOf(cause), cause)
}

function unknownTime(why: string, cause?: unknown): EngineError {
  const what = 'the file engine could not read the clock of this machine, which this runtime shows only through its FFI'
  return new EngineError(`${what}: ${why}`, [], { cause, transient: false })
}
