import { execFile, spawnSync } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const UNSHARE = ['--net', '--', 'setpriv', '--pdeathsig', 'KILL', '--']
const canUnshare =
  process.getuid?.() === 0 && spawnSync('unshare', [...UNSHARE, 'ip', 'link', 'set', 'lo', 'up']).status === 0

test.skipIf(!canUnshare)(
  'a server is cut off from all or from one other, one way or both; packets are lost, or wait; connections go on afterwards',
  async () => {
    const script = new URL('partition.mjs', import.meta.url).pathname
    const { stdout } = await promisify(execFile)('unshare', [...UNSHARE, process.execPath, script], {
      env: { ...process.env, RINGFENCE_OWN_USERS: 'yes' },
    })
    // Which of what was asked had an answer while the ways were cut.
    const open = { answered: true, other: true, executed: true }
    const clients = { first: 'PONG', second: 'PONG' }
    expect(JSON.parse(stdout)).toEqual({
      lacking: [],
      seen: {
        before: open,
        'to it': { answered: false, other: true, executed: false },
        'after to it': open,
        'from it': { answered: false, other: true, executed: true },
        'after from it': open,
        both: { answered: false, other: true, executed: false },
        'after both': open,
      },
      // What clients write on the first comes to its replica, or the first does not hear of that.
      members: {
        'from the first': { ...clients, arrived: false },
        'to the first': { ...clients, confirmed: false },
        both: { ...clients, arrived: false },
      },
      isSlow: true,
    })
  },
)
