import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** A process and all that descend from it, parents first. (PostgreSQL serves every connection by a child process.) */
export function processTree(pid: number): number[] {
  const childrenOf = new Map<number, number[]>()
  for (const name of readdirSync('/proc')) {
    const parent = /^\d+$/.test(name) ? statusOf(`/proc/${name}/stat`)?.parent : undefined
    if (parent !== undefined) childrenOf.set(parent, [...(childrenOf.get(parent) ?? []), Number(name)])
  }
  const tree = [pid]
  for (const member of tree) tree.push(...(childrenOf.get(member) ?? []))
  return tree
}

/** Sends a signal to those of the processes that still exist. */
export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    if (isGone(pid)) continue
    try {
      process.kill(pid, signal)
    } catch (error) {
      // Gone between the look and the signal.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }
}

/** Whether the kernel has stopped every thread of a process: T is its letter for that. */
export function isStopped(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).every((thread) => {
    const state = statusOf(`/proc/${pid}/task/${thread}/stat`)?.state
    return state === undefined || state === 'T'
  })
}

/** Whether a process has ended. One that nobody has collected yet (Z) holds no port, no file and no memory. */
export function isGone(pid: number): boolean {
  const state = statusOf(`/proc/${pid}/stat`)?.state
  return state === undefined || state === 'Z'
}

/** Whether this very process, and not another one that was faster, listens on the port. */
export function listensOn(pid: number, port: number): boolean {
  return boundPorts(pid).some((bound) => bound.protocol === 'tcp' && bound.port === port)
}

/** The ports on which this very process is reached. */
export function boundPorts(pid: number): { protocol: 'tcp' | 'udp'; port: number }[] {
  const own = new Set(readdirSync(`/proc/${pid}/fd`).map((file) => linkOf(`/proc/${pid}/fd/${file}`)))
  return ['tcp', 'tcp6', 'udp', 'udp6'].flatMap((table) => {
    const protocol = table.startsWith('tcp') ? 'tcp' : 'udp'
    const lines = readFileSync(`/proc/${pid}/net/${table}`, 'utf8').split('\n')
    return lines.flatMap((line) => {
      const fields = line.trim().split(/\s+/)
      // Second field the local address, fourth the state (0A: listening, 07: bound), tenth the socket's number.
      const isReached = fields[3] === (protocol === 'tcp' ? '0A' : '07') && own.has(`socket:[${fields[9]}]`)
      return isReached ? [{ protocol, port: Number.parseInt(fields[1]!.split(':')[1]!, 16) } as const] : []
    })
  })
}

function statusOf(file: string): { state: string; parent: number } | undefined {
  try {
    const line = readFileSync(file, 'utf8')
    // The second field is the program's name in parentheses, and may itself contain some.
    const [state, parent] = line.slice(line.lastIndexOf(')') + 2).split(' ') as [string, string]
    return { state, parent: Number(parent) }
  } catch {
    return undefined
  }
}

function linkOf(file: string): string {
  try {
    return readlinkSync(file)
  } catch {
    return ''
  }
}
