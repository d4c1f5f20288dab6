import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { EarlyExit } from './process.ts'

const attempts = 4
const lowestPort = 10_000
/** More than there are workers of a test run at a time. */
const shares = 8

/** Those that this process has been given: a server that is down for a while must find its own free when it comes back. */
const given = new Set<number>()

/**
 * Starts something on free ports. Between our look and the server's binding another process can take one; the server
 * then exits at once, and the start is tried again with other ports.
 */
export async function onFreePorts<T>(count: number, start: (ports: number[]) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await start(await freePorts(count))
    } catch (error) {
      if (!isTaken(error) || attempt === attempts) throw error
    }
  }
}

/**
 * Ports that can be bound now, from below the range that the kernel takes ports for outgoing connections from. Inside
 * that range a server that is down for a while could lose its port to some connection, and a client that keeps
 * connecting to the closed port can be given that very port and end up connected to itself. For the same reason each
 * worker of a test run has a share of its own, and gives no port twice.
 */
export async function freePorts(count: number): Promise<number[]> {
  const { first, size } = shareOf(process.env['VITEST_POOL_ID'])
  if (given.size + count > size / 2) given.clear()
  const ports: number[] = []
  while (ports.length < count) {
    const port = first + Math.floor(Math.random() * size)
    if (given.has(port)) continue
    given.add(port)
    if (await canBind(port)) ports.push(port)
  }
  return ports
}

function shareOf(worker: string | undefined): { first: number; size: number } {
  const size = firstOutgoingPort() - lowestPort
  if (worker === undefined) return { first: lowestPort, size }
  const share = Math.floor(size / shares)
  // A run within a test has shares of its own.
  const number = Number(worker) + Number(process.env['RINGFENCE_PORTS_FROM'] ?? 0)
  return { first: lowestPort + (number % shares) * share, size: share }
}

function isTaken(error: unknown): boolean {
  return error instanceof EarlyExit || (error as NodeJS.ErrnoException).code === 'EADDRINUSE'
}

function firstOutgoingPort(): number {
  const range = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8')
  // A machine that gives out almost all ports leaves no better choice than its own default lower bound.
  return Math.max(Number(range.split(/\s/)[0]), lowestPort + 10_000)
}

function canBind(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
