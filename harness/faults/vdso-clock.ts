import { closeSync, openSync, readdirSync, readFileSync, readSync, writeSync } from 'node:fs'
import { until } from '../until.ts'

/** What is asked of a server whose clock is to move. */
interface Running {
  readonly pid: number
  freeze(): Promise<void>
  thaw(): Promise<void>
}

/**
 * The code that reads the clock is in a page that the kernel gives to each process (the vDSO). Programs in Go call it without the
 * C library, so there is nothing to preload. Each of its three functions gets a jump to one of these, at the end of the page, which
 * asks the kernel and adds an offset; the offset lies behind them. Monotonic clocks are left alone, as a real jump does.
 */
const ADDING: Readonly<Record<string, string>> = {
  // mov eax, 228; syscall; is it CLOCK_REALTIME (0) or its coarse one (5)? Then add the offset to the seconds; ret
  __vdso_clock_gettime: 'b8e4000000 0f05 85ff 7405 83ff05 750a 488b0d OFFSET 48010e c3',
  // mov eax, 96; syscall; if there is a place for the time, add the offset to its seconds; ret
  __vdso_gettimeofday: 'b860000000 0f05 4885ff 740a 488b0d OFFSET 48010f c3',
  // mov eax, 201; syscall; add the offset to the answer, and put it into the place too, if there is one; ret
  __vdso_time: 'b8c9000000 0f05 480305 OFFSET 4885ff 7403 488907 c3',
}

/** `jmp`, and how far. */
const JUMP_BYTES = 5
/** The offset begins with this, so that a process is known that has the code. */
const MARK = Buffer.from('ringfenc')

/** The machine code is that of x86-64. */
export function canMoveClock(): boolean {
  return process.platform === 'linux' && process.arch === 'x64'
}

/** Sets how many whole seconds a server's wall clock is ahead (or, negative, behind), until it is restarted. */
export async function moveClock(server: Running, seconds: number): Promise<void> {
  const page = new Page(server.pid)
  try {
    if (page.offsetAt === undefined) await prepare(page, server)
    page.writeOffset(seconds)
  } finally {
    page.close()
  }
}

/** While it stands still, and nobody is in the middle of what is written over. */
async function prepare(page: Page, server: Running): Promise<void> {
  const isDone = async (): Promise<boolean> => {
    await server.freeze()
    const isFree = page.entries.every((entry) => !isWithin(server.pid, entry))
    if (isFree) page.writeCode()
    await server.thaw()
    return isFree
  }
  await until(isDone, { what: 'nobody reads the clock', everyMs: 1 })
}

/** Whether a thread that stands still has begun with the first instructions of a function. */
function isWithin(pid: number, entry: number): boolean {
  return readdirSync(`/proc/${pid}/task`).some((thread) => {
    // The last word is where it stands.
    const at = Number(readFileSync(`/proc/${pid}/task/${thread}/syscall`, 'utf8').trim().split(' ').at(-1))
    return at > entry && at < entry + JUMP_BYTES
  })
}

/** The page of a process. */
class Page {
  readonly #memory: number
  readonly #start: number
  readonly #bytes: Buffer
  readonly #free: number

  constructor(pid: number) {
    const [, from, to] = /^(\w+)-(\w+) .*\[vdso\]$/m.exec(readFileSync(`/proc/${pid}/maps`, 'utf8'))!
    this.#start = Number(`0x${from}`)
    this.#bytes = Buffer.alloc(Number(`0x${to}`) - this.#start)
    this.#memory = openSync(`/proc/${pid}/mem`, 'r+')
    readSync(this.#memory, this.#bytes, 0, this.#bytes.length, this.#start)
    const used = this.#bytes.findLastIndex((byte) => byte !== 0) + 1
    this.#free = Math.ceil(used / 16) * 16
  }

  /** Where the functions begin. */
  get entries(): number[] {
    return Object.keys(ADDING).map((name) => this.#start + this.#functions().get(name)!)
  }

  /** Where the offset lies; undefined if the code is not there. */
  get offsetAt(): number | undefined {
    const mark = this.#bytes.indexOf(MARK)
    return mark < 0 ? undefined : mark + MARK.length
  }

  writeOffset(seconds: number): void {
    const value = Buffer.alloc(8)
    value.writeBigInt64LE(BigInt(seconds))
    this.#write(this.offsetAt!, value)
  }

  writeCode(): void {
    const offsetAt = this.#free + MARK.length
    this.#write(this.#free, MARK)
    let place = offsetAt + 8
    for (const [name, code] of Object.entries(ADDING)) {
      const [before, after] = code.split('OFFSET').map((text) => Buffer.from(text.replaceAll(' ', ''), 'hex'))
      this.#write(place, Buffer.concat([before!, distance(place + before!.length, offsetAt), after!]))
      const entry = this.#functions().get(name)!
      this.#write(entry, Buffer.concat([Buffer.from([0xe9]), distance(entry + 1, place)]))
      place += before!.length + 4 + after!.length
    }
  }

  close(): void {
    closeSync(this.#memory)
  }

  #write(at: number, bytes: Buffer): void {
    if (at + bytes.length > this.#bytes.length) throw new Error('the page of the clock has no room')
    bytes.copy(this.#bytes, at)
    writeSync(this.#memory, bytes, 0, bytes.length, this.#start + at)
  }

  /** Its functions by name: it is a library in the format ELF. */
  #functions(): Map<string, number> {
    const bytes = this.#bytes
    const sections = new Map<number, { at: number; size: number; names: number }>()
    const [at, size, count] = [Number(bytes.readBigUInt64LE(0x28)), bytes.readUInt16LE(0x3a), bytes.readUInt16LE(0x3c)]
    for (let index = 0; index < count; index++) {
      const header = bytes.subarray(at + index * size)
      const [place, length] = [Number(header.readBigUInt64LE(0x18)), Number(header.readBigUInt64LE(0x20))]
      sections.set(header.readUInt32LE(4), { at: place, size: length, names: header.readUInt32LE(0x28) })
    }
    const symbols = sections.get(DYNAMIC_SYMBOLS)!
    const header = bytes.subarray(at + symbols.names * size)
    const names = bytes.subarray(Number(header.readBigUInt64LE(0x18)))
    const found = new Map<string, number>()
    for (let symbol = symbols.at; symbol < symbols.at + symbols.size; symbol += SYMBOL_BYTES) {
      const name = names.subarray(bytes.readUInt32LE(symbol))
      found.set(name.toString('latin1', 0, name.indexOf(0)), Number(bytes.readBigUInt64LE(symbol + 8)))
    }
    return found
  }
}

/** The type of a section. */
const DYNAMIC_SYMBOLS = 11
const SYMBOL_BYTES = 24

/** Counted from behind itself. */
function distance(at: number, to: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32LE(to - (at + 4))
  return bytes
}
