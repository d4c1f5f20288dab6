import { consul } from '../../engines/consul/index.ts'
import { etcd } from '../../engines/etcd/index.ts'
import { certificatesOf, isSecure, parseAddress, type Address } from './address.ts'
import type { Connection } from './connect.ts'
import { redacted } from '../settings.ts'

/** `etcd://user:password@a,b,c`; `etcds://` with TLS. */
export async function connectEtcd(url: string): Promise<Connection> {
  const address = parseAddress(url, 2379)
  const { user, password, parameters } = address
  const options = { ...parameters.take({ prefix: 'text', requestTimeout: 'text' }), ...tlsOf(address) }
  parameters.done()
  const login = { ...(user === undefined ? {} : { username: user }), ...(password === undefined ? {} : { password }) }
  return connection(url, etcd(urlsOf(address), { ...options, ...login }))
}

/** `consul://host:8500?token=…`, or the token as the password; `consuls://` with TLS. */
export async function connectConsul(url: string): Promise<Connection> {
  const address = parseAddress(url, 8500)
  const { password, parameters } = address
  const names = {
    prefix: 'text',
    token: 'text',
    lockDelay: 'text',
    sessionTtlMin: 'text',
    node: 'text',
    datacenter: 'text',
    namespace: 'text',
    requestTimeout: 'text',
  } as const
  const options = {
    ...(password === undefined ? {} : { token: password }),
    ...parameters.take(names),
    ...tlsOf(address),
  }
  parameters.done()
  return connection(url, consul(urlsOf(address), options))
}

function urlsOf(address: Address): string[] {
  const protocol = isSecure(address) ? 'https' : 'http'
  return address.hosts.map(({ host, port }) => `${protocol}://${host.includes(':') ? `[${host}]` : host}:${port}`)
}

function tlsOf(address: Address): { tls?: Record<string, Buffer> } {
  const tls = certificatesOf(address)
  return tls === undefined ? {} : { tls }
}

function connection(url: string, engine: Connection['engine']): Connection {
  return { engine, url: redacted(url), close: () => undefined }
}
