import { zookeeper, type ZookeeperDriver } from '../../engines/zookeeper/index.ts'
import { parseAddress } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { loadDriver } from './driver.ts'

/** `zookeeper://user:password@a,b,c/chroot`. */
export async function connectZookeeper(url: string): Promise<OpenedEngine> {
  const { user, password, hosts, path, parameters } = parseAddress(url, {
    port: 2181,
    example: 'zookeeper://a,b,c',
  })
  const options = parameters.take(['path', 'maxTtl', 'requestTimeout', 'acl'])
  parameters.done()
  const { module } = await loadDriver(['node-zookeeper-client'], 'ZooKeeper')
  const driver = (module['createClient'] === undefined ? module['default'] : module) as ZookeeperDriver
  const servers = hosts.map(({ host, port }) => `${host}:${port}`).join(',')
  const auth = user === undefined ? {} : { auth: { scheme: 'digest', auth: `${user}:${password ?? ''}` } }
  return { engine: zookeeper(driver, path === '' ? servers : `${servers}/${path}`, { ...options, ...auth }) }
}
