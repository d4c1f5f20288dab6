import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { EarlyExit } from './process.ts'

const attempts = 4
const lowestPort = 10_000

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
 * connecting to the closed port can be given that very port and end up connected to itself.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>()
  while (ports.size < count) {
    const port = lowestPort + Math.floor(Math.random() * (firstOutgoingPort() - lowestPort))
    if (!ports.has(port) && (await canBind(port))) ports.add(port)
  }
  return [...ports]
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
