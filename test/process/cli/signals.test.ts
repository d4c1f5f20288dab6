import { constants } from 'node:os'
import { afterAll, expect, test } from 'vitest'
import { Home } from '../../../harness/command.ts'
import { isStopped } from '../../../harness/process-tree.ts'
import { until } from '../../../harness/until.ts'

const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

const ENDING = ['INT', 'TERM', 'HUP', 'QUIT', 'USR1', 'USR2'] as const

/** Tells each signal that it gets, in two processes of the group, and goes on. (A shell's background jobs ignore INT.) */
const LISTENER = `
for (const name of ['INT', 'TERM', 'HUP', 'QUIT', 'USR1', 'USR2', 'WINCH'])
  process.on('SIG' + name, () => console.log(process.argv[1], name))
if (process.argv[1] === 'child')
  require('child_process').spawn(process.execPath, ['-e', process.env.LISTENER, 'grandchild'], { stdio: 'inherit' })
console.log('ready')
setInterval(() => {}, 1000)
`

test('a running command and its children get every signal once, and the command decides what it means', async () => {
  const command = home.start(['run', 'forwarded', '--', process.execPath, '-e', LISTENER, 'child'], {
    env: { LISTENER },
  })
  await command.printed(/ready\n[^]*ready\n/)
  for (const name of [...ENDING, 'WINCH'] as const) {
    command.signal(`SIG${name}`)
    await command.printed(new RegExp(`child ${name}\\n[^]*child ${name}\\n`))
  }
  const got = command.stdout.split('\n').filter((line) => line.startsWith('child'))
  expect(got).toEqual([...ENDING, 'WINCH'].map((name) => `child ${name}`))
})

test('a command that does not handle a signal dies of it, and ringfence tells so by 128 + n', async () => {
  const command = home.start(['run', 'dies', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await command.printed(/ready/)
  command.signal('SIGHUP')
  expect(await command.ended).toMatchObject({ code: 129, signal: null })
  expect(await home.run(['run', '--no-wait', 'dies', '--', 'true'])).toMatchObject({ code: 0 })
})

test.each(['INT', 'TERM', 'HUP'] as const)(
  'a stopped command takes %s at once, and the lease is free',
  async (name) => {
    const argv = ['sh', '-c', 'echo $$ ready; kill -STOP $$; exec sleep 600']
    const command = home.start(['run', '--no-wait', 'stopped', '--', ...argv])
    await command.printed(/ready/)
    const pid = Number.parseInt(command.stdout)
    await until(() => isStopped(pid), { what: 'the command is stopped' })
    command.signal(`SIG${name}`)
    expect(await command.ended).toMatchObject({ code: 128 + constants.signals[`SIG${name}`], signal: null })
  },
)

test('while it waits, each signal ends the wait with 128 + n, and nothing of it is left in the queue', async () => {
  const holder = home.start(['run', 'busy', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await holder.printed(/ready/)
  const waiters = ENDING.map((name) => ({
    name,
    command: home.start(['run', 'busy', '--', 'touch', home.file('never')]),
  }))
  await until(async () => (await waiting('busy')) === ENDING.length, { what: 'all of them wait', withinMs: 40_000 })
  for (const { name, command } of waiters) command.signal(`SIG${name}`)
  for (const { name, command } of waiters) {
    const code = 128 + constants.signals[`SIG${name}`]
    expect(await command.ended).toEqual({ code, signal: null, stdout: '', stderr: '' })
  }
  expect(await waiting('busy')).toBe(0)
  holder.signal('SIGTERM')
  expect(await holder.ended).toMatchObject({ code: 143 })
  expect(await home.run(['status', 'busy', '--json'])).toMatchObject({ code: 1 })
})

test('a new window size does not end a wait', async () => {
  const holder = home.start(['run', 'resized', '--', 'sh', '-c', 'echo ready; read -r _; exit 0'])
  await holder.printed(/ready/)
  const waiter = home.start(['run', 'resized', '--', 'echo', 'my turn'])
  await until(async () => (await waiting('resized')) === 1, { what: 'it waits' })
  waiter.signal('SIGWINCH')
  holder.type('\n')
  expect(await holder.ended).toMatchObject({ code: 0 })
  expect(await waiter.ended).toMatchObject({ code: 0, stdout: 'my turn\n' })
})

async function waiting(resource: string): Promise<number> {
  const { stdout } = await home.run(['status', resource, '--json'])
  const { leases } = JSON.parse(stdout) as { leases: { waiters: number }[] }
  return leases[0]?.waiters ?? 0
}
