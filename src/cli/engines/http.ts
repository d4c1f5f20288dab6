import { given } from '../../arguments.ts'
import { consul } from '../../engines/consul/index.ts'
import { etcd } from '../../engines/etcd/index.ts'
import { certificatesOf, isSecure, parseAddress, type Address } from './address.ts'
import type { OpenedEngine } from './connect.ts'

/** `etcd://user:password@a,b,c`; `etcds://` with TLS. */
export async function connectEtcd(url: string): Promise<OpenedEngine> {
  const address = parseAddress(url, { port: 2379, example: 'etcd://a,b,c' })
  const { user, password, parameters } = address
  const options = { ...parameters.take(['prefix', 'requestTimeout']), ...given({ tls: certificatesOf(address) }) }
  parameters.done()
  return { engine: etcd(urlsOf(address), { ...options, ...given({ username: user, password }) }) }
}

/** `consul://host:8500?token=…`, or the token as the password; `consuls://` with TLS. */
export async function connectConsul(url: string): Promise<OpenedEngine> {
  const address = parseAddress(url, { port: 8500, example: 'consul://host:8500' })
  const { password, parameters } = address
  const names = ['prefix', 'token', 'lockDelay', 'sessionTtlMin', 'node', 'datacenter', 'namespace', 'requestTimeout']
  const options = {
    ...given({ token: password }),
    ...parameters.take(names),
    ...given({ tls: certificatesOf(address) }),
  }
  parameters.done()
  return { engine: consul(urlsOf(address), options) }
}

function urlsOf(address: Address): string[] {
  const protocol = isSecure(address) ? 'https' : 'http'
  return address.hosts.map(({ host, port }) => `${protocol}://${host.includes(':') ? `[${host}]` : host}:${port}`)
}
