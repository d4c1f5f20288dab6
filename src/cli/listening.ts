import { once } from 'node:events'
import type { Server } from 'node:http'
import { isIPv4, isIPv6, type AddressInfo } from 'node:net'
import { EXIT, Failure, usage } from './exit-codes.ts'

/** No client needs long to send a few hundred bytes, nor more than that; the answer of a stream may take forever. */
export const LIMITS = {
  maxHeaderSize: 16 * 1024,
  headersTimeout: 10_000,
  requestTimeout: 20_000,
  keepAliveTimeout: 5000,
}

export interface ListenAddress {
  readonly host: string
  readonly port: number
}

/** Of `--listen`: `7464`, `127.0.0.1:7464`, `[::1]:7464`. */
export function listenAddress(text: string): ListenAddress {
  const match = /^(?:(\[[0-9a-f:.]+\]|[^:[\]/\s]+):)?(\d{1,5})$/i.exec(text)
  const port = Number(match?.[2])
  if (match === null || port > 65_535) throw usage(`--listen: expected PORT or HOST:PORT, got '${text}'`)
  return { host: match[1]?.replace(/^\[|\]$/g, '') ?? '127.0.0.1', port }
}

export async function listen(server: Server, { host, port }: ListenAddress): Promise<AddressInfo> {
  server.listen(port, host)
  try {
    await once(server, 'listening')
  } catch (error) {
    throw new Failure(
      EXIT.failed,
      `cannot listen: ${(error as Error).message}`,
      '--listen HOST:PORT takes another',
      error,
    )
  }
  return server.address() as AddressInfo
}

/** As a browser takes it. */
export function urlOf({ family, address, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}

export function isLoopback(host: string): boolean {
  if (isIPv4(host)) return host.startsWith('127.')
  return isIPv6(host) ? host === '::1' : host.toLowerCase() === 'localhost'
}
