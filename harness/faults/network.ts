import { execFileSync } from 'node:child_process'
import { isAvailable, program } from '../binaries.ts'
import type { ServerHandle } from '../handle.ts'
import { boundPorts } from '../process-tree.ts'
import { FIRST_OWN_USER, OWN_USERS } from '../temporary-folder.ts'

/** Whose packets to whom: of one server to another, or, where one of the two is missing, to or from everybody else. */
export type Path =
  | { readonly from: ServerHandle; readonly to: ServerHandle }
  | { readonly from: ServerHandle; readonly to?: never }
  | { readonly from?: never; readonly to: ServerHandle }

/** How what goes a slow line is held up: it waits in a queue of this length at most, and what comes to a full one is lost. */
export interface SlowLine {
  readonly bytesPerSecond: number
  readonly mostMs: number
}

/** A class of packets. */
const SLOW = '1:66'

const can = { cut: false, slow: false }

/** Whether packets can be lost: all of them, or some. */
export function canCut(): boolean {
  return can.cut
}

export function canSlow(): boolean {
  return can.slow
}

/**
 * Must be called once in a new network namespace (`unshare --net`) where each server runs as a user of its own
 * (RINGFENCE_OWN_USERS), before a server is started in it. Returns what this machine cannot do, and why.
 */
export function openNetwork(): string[] {
  run('ip', 'link set lo up')
  // Packets of a usual size: else a single one carries an answer of 64 kB.
  run('ip', 'link set lo mtu 1500')
  run('ip', 'link set lo gso_max_segs 1')
  const lacking: string[] = []
  const attempt = (what: string, prepare: () => void): boolean => {
    try {
      prepare()
      return true
    } catch (error) {
      lacking.push(`${what}: ${(error as Error).message.trim()}`)
      return false
    }
  }
  can.cut = attempt('cut servers off from each other, or lose packets', () => {
    if (!isAvailable('nft')) throw new Error('`npm run servers -- nft` has not been run')
    // A connection is known by who opened it: of an answer, or of what the kernel sends, the user is not known.
    nft(`table ip ringfence {
      map users { type uid : mark; elements = { ${users().join(', ')} }; }
      chain openers { type filter hook output priority -10; ct direction original ct mark set meta skuid map @users; }
    }`)
    // The kernel may know the tables and lack this.
    trouble('input', ['ct mark 1'], `${now(1)} drop`)()
  })
  can.slow =
    can.cut &&
    attempt('delay packets', () => {
      run('tc', 'qdisc add dev lo root handle 1: htb')
      changeSlowLine('add', { bytesPerSecond: 100_000, mostMs: 100 })
    })
  return lacking
}

/** Nothing passes, connections stay open and nobody is told, until the function that is returned is called. */
export function cut(paths: readonly Path[]): () => void {
  return trouble('input', paths.flatMap(matches), 'drop')
}

/** How many of a hundred packets are lost, by chance. */
export function lose(paths: readonly Path[], percent: number): () => void {
  return trouble('input', paths.flatMap(matches), `${now(percent)} drop`)
}

/** All that goes these ways shares one slow line. There is one at a time. */
export function slow(paths: readonly Path[], line: SlowLine): () => void {
  changeSlowLine('change', line)
  return trouble('output', paths.flatMap(matches), `meta priority set ${SLOW}`)
}

function now(percent: number): string {
  return `numgen random mod 100 < ${percent}`
}

/** Lost where it would come in: who sends is told at once of what cannot go out. */
function trouble(hook: 'input' | 'output', matching: readonly string[], verdict: string): () => void {
  const chain = `ip ringfence trouble${troubles++}`
  const rules = matching.map((match) => `add rule ${chain} ${match} ${verdict}`)
  nft([`add chain ${chain} { type filter hook ${hook} priority 0; }`, ...rules, ''].join('\n'))
  return () => nft(`flush chain ${chain}\ndelete chain ${chain}`)
}

let troubles = 0

/** On connections that the sender has opened, and on those that were opened to it. What a server sends to itself is left alone. */
function matches({ from, to }: Path): string[] {
  const [sender, receiver] = [whose(from, to), whose(to, from)]
  return [
    `ct direction original ct mark ${sender.user} th dport ${receiver.ports}`,
    `ct direction reply th sport ${sender.ports} ct mark ${receiver.user}`,
  ]
}

/** Of a server, or else of everybody but the other one. */
function whose(server: ServerHandle | undefined, other: ServerHandle | undefined): { user: string; ports: string } {
  const isNot = server === undefined ? '!= ' : ''
  const known = (server ?? other)!
  const ports = new Set(boundPorts(known.pid).map(({ port }) => port))
  return { user: `${isNot}${known.ownUser}`, ports: `${isNot}{ ${[...ports].join(', ')} }` }
}

function users(): string[] {
  return Array.from({ length: OWN_USERS }, (_, index) => `${FIRST_OWN_USER + index} : ${FIRST_OWN_USER + index}`)
}

function changeSlowLine(how: 'add' | 'change', { bytesPerSecond, mostMs }: SlowLine): void {
  const queueBytes = Math.max(2 * 1500, Math.round((bytesPerSecond * mostMs) / 1000))
  run(
    'tc',
    `class ${how} dev lo parent 1: classid ${SLOW} htb rate ${Math.round(bytesPerSecond)}bps burst 1500 quantum 1500`,
  )
  run('tc', `qdisc ${how} dev lo parent ${SLOW} handle 2: bfifo limit ${queueBytes}`)
}

function nft(rules: string): void {
  const { path, env } = program('nft')
  execFileSync(path, ['-f', '-'], { input: rules, env: { ...process.env, ...env }, stdio: ['pipe', 'ignore', 'pipe'] })
}

function run(tool: 'ip' | 'tc', command: string): void {
  execFileSync(tool, command.split(' '), { stdio: ['ignore', 'ignore', 'pipe'] })
}
