import { readFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Fault } from './nemesis.ts'
import { DIFFERENCES, pairsOf, type Totals } from './totals.ts'

/**
 * Every kind of fault that seeds have, and what clients may differ in. Other scripts are for the runs that break one assumption alone; those of
 * an older version are no fault.
 */
const KINDS: Record<Exclude<Fault['kind'], 'alter'> | (typeof DIFFERENCES)[number], true> = {
  delay: true,
  'lose-request': true,
  'lose-reply': true,
  reset: true,
  cut: true,
  forget: true,
  slow: true,
  freeze: true,
  crash: true,
  replace: true,
  restore: true,
  deny: true,
  spoil: true,
  flushall: true,
  noscript: true,
  failover: true,
  evict: true,
  'cut-replica': true,
  jump: true,
  'jump-process': true,
  drift: true,
  'drift-process': true,
  pause: true,
  'crash-process': true,
  'close-process': true,
  'other nodes': true,
  'other maxTtl': true,
}

/** Which kinds of faults, and which two of them, have happened in the same run. */
export function faultCoverage({ seeds, faults, pairs }: Totals): string {
  const kinds = Object.keys(KINDS)
  const all = pairsOf(kinds)
  const missing = all.filter((pair) => pairs[pair] === undefined)
  const rare = Object.entries(pairs)
    .sort(([, a], [, b]) => a - b)
    .slice(0, 10)
  return [
    `faults in ${seeds} seeds: ${kinds.length - kinds.filter((kind) => faults[kind] === undefined).length} of ${kinds.length} kinds`,
    `pairs of kinds in one run: ${all.length - missing.length} of ${all.length}`,
    ...(missing.length === 0 ? [] : [`never together: ${missing.join(', ')}`]),
    `seldom together: ${rare.map(([pair, count]) => `${pair} (${count})`).join(', ')}`,
  ].join('\n')
}

interface FileCoverage {
  readonly file: string
  readonly covered: number
  readonly length: number
  /** Functions with a name that were never called. */
  readonly unused: readonly string[]
}

/** Which part of the library's code runs, while something is done. */
export async function codeCoverage<T>(act: () => Promise<T>): Promise<{ result: T; text: string }> {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
  const result = await act()
  const { result: scripts } = await session.post('Profiler.takePreciseCoverage')
  session.disconnect()
  const root = path.resolve(import.meta.dirname, '..', 'src')
  const files = scripts
    .filter(({ url }) => url.startsWith('file:') && fileURLToPath(url).startsWith(root))
    .map(({ url, functions }): FileCoverage => {
      const file = fileURLToPath(url)
      const ran = new Uint8Array(readFileSync(file, 'utf8').length).fill(1)
      const ranges = functions.flatMap((one) => one.ranges)
      // What is inside of another comes after it, and counts.
      ranges.sort((a, b) => b.endOffset - b.startOffset - (a.endOffset - a.startOffset))
      for (const { startOffset, endOffset, count } of ranges) ran.fill(count > 0 ? 1 : 0, startOffset, endOffset)
      const unused = functions.flatMap(({ functionName, ranges: [whole] }) =>
        whole?.count === 0 && functionName !== '' ? [functionName] : [],
      )
      const covered = ran.reduce((sum, one) => sum + one, 0)
      return { file: path.relative(root, file), covered, length: ran.length, unused }
    })
  return { result, text: told(files) }
}

function part(covered: number, length: number): string {
  return `${((100 * covered) / length).toFixed(1)} %`
}

function told(files: readonly FileCoverage[]): string {
  const sum = (of: (file: FileCoverage) => number): number => files.reduce((so, file) => so + of(file), 0)
  const worst = files
    .filter(({ covered, length }) => covered < 0.95 * length)
    .sort((a, b) => a.covered / a.length - b.covered / b.length)
  return [
    `code of the library that is loaded: ${part(
      sum((file) => file.covered),
      sum((file) => file.length),
    )} of ${files.length} files has run`,
    ...worst.map(
      ({ file, covered, length, unused }) =>
        `  ${file.padEnd(44)} ${part(covered, length).padStart(7)}${unused.length === 0 ? '' : `  never called: ${unused.join(', ')}`}`,
    ),
  ].join('\n')
}
