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
  const hexPort = port.toString(16).toUpperCase().padStart(4, '0')
  const sockets = new Set<string>()
  for (const table of ['tcp', 'tcp6']) {
    for (const line of readFileSync(`/proc/${pid}/net/${table}`, 'utf8').split('\n')) {
      const fields = line.trim().split(/\s+/)
      // Second field the local address, fourth the state (0A: listening), tenth the socket's number.
      if (fields[1]?.endsWith(`:${hexPort}`) && fields[3] === '0A') sockets.add(`socket:[${fields[9]}]`)
    }
  }
  return (
    sockets.size > 0 && readdirSync(`/proc/${pid}/fd`).some((file) => sockets.has(linkOf(`/proc/${pid}/fd/${file}`)))
  )
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
