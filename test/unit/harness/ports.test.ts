import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { expect, test, vi } from 'vitest'
import { freePorts, onFreePorts } from '../../../harness/ports.ts'
import { EarlyExit } from '../../../harness/process.ts'

test('ports are distinct and never those of outgoing connections', async () => {
  const ports = await freePorts(50)
  const [firstOutgoing] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s/)
  expect(new Set(ports).size).toBe(50)
  expect(Math.max(...ports)).toBeLessThan(Number(firstOutgoing))
})

test('a start that loses its port to another process is tried again with another port', async () => {
  const tried: number[] = []
  await onFreePorts(1, async ([port = 0]) => {
    tried.push(port)
    if (tried.length === 1) throw new EarlyExit('address in use')
  })
  expect(new Set(tried).size).toBe(2)
})

test('a start that fails for another reason is not tried again', async () => {
  let tries = 0
  const start = onFreePorts(1, async () => {
    tries += 1
    throw new Error('no such option')
  })
  await expect(start).rejects.toThrow('no such option')
  expect(tries).toBe(1)
})

test('a port in use is not offered', async () => {
  const [port = 0] = await freePorts(1)
  const server = createServer().listen(port, '127.0.0.1')
  await once(server, 'listening')
  const others = await freePorts(200)
  server.close()
  expect(others).not.toContain(port)
})

test('two workers are never offered the same port, and one is not offered a port twice', async () => {
  const offered: number[][] = []
  for (const worker of ['1', '2', '3']) {
    vi.stubEnv('VITEST_POOL_ID', worker)
    offered.push([...(await freePorts(100)), ...(await freePorts(100))])
  }
  vi.unstubAllEnvs()
  expect(new Set(offered.flat()).size).toBe(600)
})
