// The servers of the tests are TypeScript, which Node 20 does not run by itself.
import { spawn, spawnSync } from 'node:child_process'
import { runnerImport } from 'vite'

/** Root may have a network of its own, where servers can be cut off from each other: see harness/faults/network.ts. */
const UNSHARE = ['--net', '--', 'setpriv', '--pdeathsig', 'KILL', '--']
const isInside = process.env.RINGFENCE_OWN_USERS === 'yes'
const isRoot = process.getuid?.() === 0
const hasTools = () => spawnSync('unshare', [...UNSHARE, 'ip', 'link', 'set', 'lo', 'up']).status === 0

if (isInside || !isRoot || !hasTools()) {
  if (!isInside) console.log('no partitions, no loss or delay of packets: they need root, unshare and ip (iproute2)')
  await runnerImport(new URL('./main.ts', import.meta.url).pathname, {
    configFile: false,
    // Node 20 does not know `await using`.
    oxc: { target: 'es2022' },
  })
  process.exit()
} else {
  const child = spawn('unshare', [...UNSHARE, process.execPath, ...process.argv.slice(1)], {
    env: { ...process.env, RINGFENCE_OWN_USERS: 'yes' },
    stdio: 'inherit',
  })
  for (const name of ['SIGINT', 'SIGTERM']) process.on(name, () => child.kill(name))
  child.on('exit', (code) => process.exit(code ?? 1))
}
