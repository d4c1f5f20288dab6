import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { afterAll, expect, test } from 'vitest'
import { startRedis } from '../../../harness/servers/redis.ts'
import { Home } from '../../../harness/command.ts'
import { isGone, processTree } from '../../../harness/process-tree.ts'
import { until } from '../../../harness/until.ts'

const home = new Home({ TERM: 'xterm', PS1: '$ ' })
afterAll(() => home[Symbol.asyncDispose]())

const RUN = '"$NODE" "$RINGFENCE" run'
/** The rest of a line is taken away, in a regular expression. */
const ERASE = '\\u001b\\[K'
const CTRL_C = '\u0003'
const CTRL_Z = '\u001a'
// eslint-disable-next-line no-control-regex -- control codes are what it looks for
const CONTROL_CODE = /\u001b/

test('the command has the terminal, in a process group of its own', async () => {
  const shown = `read -r pid name state parent group session tty foreground rest </proc/self/stat
    echo "group=$group self=$$ foreground=$foreground"; tty`
  const terminal = home.terminal(`${RUN} shown -- sh -c '${shown}'`)
  const { code, stdout } = await terminal.ended
  const { group, self, foreground } = /group=(?<group>\d+) self=(?<self>\d+) foreground=(?<foreground>\d+)/.exec(
    stdout,
  )!.groups!
  expect(group).toBe(self)
  expect(foreground).toBe(self)
  expect(stdout).toContain('/dev/pts/')
  expect(code).toBe(0)
})

test('what is typed reaches the command, and its exit code comes back', async () => {
  const terminal = home.terminal(`${RUN} typed -- sh -c 'echo ready; read -r word </dev/tty; echo "got $word"; exit 7'`)
  await terminal.printed(/ready/)
  terminal.type('hello\n')
  await terminal.printed(/got hello/)
  expect(await terminal.ended).toMatchObject({ code: 7 })
})

test('Ctrl-C reaches the command once, and it may go on', async () => {
  const stubborn = `trap 'echo caught' INT; echo ready; while :; do sleep 0.02; done`
  const terminal = home.terminal(`${RUN} caught -- sh -c "${stubborn}"`)
  await terminal.printed(/ready/)
  terminal.type(CTRL_C)
  await terminal.printed(/caught/)
  terminal.type(CTRL_C)
  await terminal.printed(/caught[^]*caught/)
  expect(terminal.stdout.match(/caught/g)).toHaveLength(2)
})

test('a command that dies of Ctrl-C stops the script that called ringfence, as any command does', async () => {
  const terminal = home.terminal(`${RUN} stops -- sh -c 'echo ready; exec sleep 600'; echo "the script goes on"`)
  await terminal.printed(/ready/)
  terminal.type(CTRL_C)
  expect(await terminal.ended).toMatchObject({ code: 130 })
  expect(terminal.stdout).not.toContain('the script goes on')
})

test('Ctrl-C while it waits ends the wait, and the script', async () => {
  const holder = home.start(['run', 'waits', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await holder.printed(/ready/)
  const terminal = home.terminal(`${RUN} waits -- echo ran; echo "the script goes on"`)
  await terminal.printed(/waiting .*: 'waits' is held by/)
  terminal.type(CTRL_C)
  expect(await terminal.ended).toMatchObject({ code: 130 })
  expect(terminal.stdout).not.toMatch(/\bran\b|goes on/)
})

test('while it waits, one line is rewritten: how long, who holds it, since when; it is gone before the command starts', async () => {
  const holder = home.start(['run', '--label', 'mallory', 'live', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await holder.printed(/ready/)
  const terminal = home.terminal(`${RUN} live -- echo 'the command ran'`)
  await terminal.printed(
    new RegExp(`\\rringfence: waiting(, number 1 of 1 in line)?: 'live' is held by mallory \\(sh\\)[^\\r\\n]*${ERASE}`),
  )
  // Written over, not below.
  await terminal.printed(
    new RegExp(
      `\\rringfence: waiting \\d\\.\\d s(, number 1 of 1 in line)?: 'live' is held by mallory \\(sh\\) for \\d[^\\r\\n]*${ERASE}`,
    ),
  )
  holder.signal('SIGTERM')
  expect(await terminal.ended).toMatchObject({ code: 0 })
  expect(terminal.stdout).toMatch(new RegExp(`${ERASE}\\r${ERASE}the command ran\\r\\n$`))
  expect(terminal.stdout.match(/\n/g)).toHaveLength(1)
})

test('where it waits for a permit, it says who has one, since when, and the place in its line', async () => {
  const holder = home.start([
    'run',
    '--label',
    'mallory',
    '--permits',
    '1',
    'pool',
    '--',
    'sh',
    '-c',
    'echo ready; exec sleep 600',
  ])
  await holder.printed(/ready/)
  const terminal = home.terminal(`stty cols 200; ${RUN} --permits 1 pool -- echo 'the command ran'`)
  await terminal.printed(
    /: waiting [^:\r]*, number 1 of 1 in line: 'pool#0' is held by mallory \(sh; pool of 1\) for \d[^;\r]*; all 1 permits of 'pool' are held/,
  )
  holder.signal('SIGTERM')
  expect(await terminal.ended).toMatchObject({ code: 0 })
})

test.each(['redis', 'file'])(
  'the line names the place among those who wait, and status names them all: %s',
  async (kind) => {
    await using server = kind === 'redis' ? await startRedis() : undefined
    const env = server === undefined ? {} : { RINGFENCE_URL: server.url }
    const holder = home.start(['run', 'placed', '--', 'sh', '-c', 'echo ready; exec sleep 600'], { env })
    await holder.printed(/ready/)
    const first = home.start(['run', '--label', 'first', 'placed', '--', 'sleep', '600'], { env })
    const status = async (): Promise<string> => (await home.run(['status', 'placed'], { env })).stdout
    await until(async () => / 1\n/.test(await status()), { what: 'the first one waits', everyMs: 200 })
    const second = home.terminal(`${RUN} placed -- true`, { env })
    await second.printed(/, number 2 of 2 in line: /)
    expect(await status()).toMatch(/\nNEXT +WAITS +SINCE\n1 +first \(sleep\) +[\d.]+ m?s\n2 +.*\(true\) +[\d.]+ m?s\n$/)
    first.signal('SIGTERM')
    await first.ended
    await second.printed(/, number 1 of 1 in line: /)
  },
)

test('the line is cut to the width of the terminal, and with --quiet there is none', async () => {
  const holder = home.start(['run', 'narrow', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await holder.printed(/ready/)
  const narrow = home.terminal(`stty cols 30; ${RUN} narrow -- true`)
  expect(await narrow.printed(new RegExp(`\\r(ringfence: waiting [^\\r]*)${ERASE}`))).toHaveLength(29)
  const quiet = home.terminal(`${RUN} --quiet --wait 1500ms narrow -- true`)
  expect(await quiet.ended).toMatchObject({ code: 194, stdout: '' })
})

test('a candidate sees whom it waits for, and the line is gone when it leads', async () => {
  const leader = home.start(['elect', '--label', 'mallory', 'led', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await leader.printed(/ready/)
  const terminal = home.terminal('"$NODE" "$RINGFENCE" elect led -- echo "led n""ow"')
  await terminal.printed(/\rringfence: waiting: 'led' is held by mallory/)
  leader.signal('SIGTERM')
  await terminal.printed(new RegExp(`${ERASE}\\r${ERASE}ringfence: leading 'led', token \\d+\\r\\n[^]*led now`))
})

test('a new size of the window reaches the command', async () => {
  writeFileSync(home.file('sized.sh'), `trap 'echo "size $(stty size)"' WINCH; tty; while :; do sleep 0.02; done`)
  const terminal = home.terminal(`${RUN} sized -- sh sized.sh`)
  const device = await terminal.printed(/\/dev\/pts\/\d+/)
  execFileSync('stty', ['-F', device, 'rows', '33', 'cols', '99'])
  // In two steps, rows and columns.
  await terminal.printed(/size 33 99\r\n/)
})

test('Ctrl-Z stops the command and ringfence, and fg lets both go on', async () => {
  const shell = home.terminal('bash --norc -i')
  shell.type(`${RUN} paused -- sh -c 'echo rea''dy; read -r word; echo "got $word"; exit 5'\n`)
  await shell.printed(/ready\r\n/)
  shell.type(CTRL_Z)
  await shell.printed(/Stopped/)
  shell.type('echo "back in the sh""ell"\n')
  await shell.printed(/back in the shell/)
  shell.type('fg\n')
  await shell.printed(/fg\r\n[^]*run paused/)
  shell.type('again\n')
  await shell.printed(/got again/)
  shell.type('echo "code=$?"\n')
  await shell.printed(/code=5/)
  shell.type('exit\n')
  expect(await shell.ended).toMatchObject({ code: 0 })
})

test('a command left at Ctrl-Z past its ttl is dead, and fg tells that the lease was lost', async () => {
  const shell = home.terminal('bash --norc -i')
  shell.type(`${RUN} --ttl 2s --grace 200ms left -- sh -c 'echo "pi''d $$"; read -r word; echo sur''vived'\n`)
  const pid = Number(await shell.printed(/pid (\d+)\r\n/))
  shell.type(CTRL_Z)
  await shell.printed(/Stopped/)
  await until(() => isGone(pid), { what: 'the command is dead' })
  shell.type('fg\n')
  await shell.printed(/the time of the lease is up/)
  shell.type('echo "code=$?"\n')
  await shell.printed(/code=195/)
  expect(shell.stdout).not.toContain('survived')
})

test('when ringfence is killed with SIGKILL on a terminal, the command dies and the shell keeps its terminal', async () => {
  const shell = home.terminal('bash --norc -i')
  shell.type(`${RUN} gone -- sh -c 'echo "pi''d $$"; exec sleep 600'\n`)
  const pid = Number(await shell.printed(/pid (\d+)\r\n/))
  const ringfence = processTree(shell.pid).find(
    (one) => /main\.cjs run gone/.test(commandLine(one)) && /^\S*node /.test(commandLine(one)),
  )!
  process.kill(ringfence, 'SIGKILL')
  await until(() => isGone(pid), { what: 'the command is dead' })
  shell.type('echo "still he""re"\n')
  await shell.printed(/still here/)
})

test('in the background it does not take the terminal from the shell', async () => {
  const shell = home.terminal('bash --norc -i')
  shell.type(`${RUN} back -- sh -c 'echo "star''ted"; sleep 0.5; echo "do''ne"' &\n`)
  await shell.printed(/started/)
  shell.type('echo "still m""ine"\n')
  await shell.printed(/still mine/)
  await shell.printed(/done/)
})

test('colours are for terminals, unless NO_COLOR; a pipe gets none, nor does JSON', async () => {
  const holder = home.start(['run', 'coloured', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await holder.printed(/ready/)
  const status = '"$NODE" "$RINGFENCE" status'
  const [terminal, plain, json, piped] = await Promise.all([
    home.terminal(status).ended,
    home.terminal(status, { env: { NO_COLOR: '1' } }).ended,
    home.terminal(`${status} --json`).ended,
    home.run(['status']),
  ])
  expect(terminal.stdout).toMatch(CONTROL_CODE)
  for (const { stdout } of [plain, json, piped]) {
    expect(stdout).toContain('coloured')
    expect(stdout).not.toMatch(CONTROL_CODE)
  }
})

test('release asks on the terminal, says whose it is, and takes no for an answer', async () => {
  const holder = home.start([
    'run',
    '--ttl',
    '2s',
    '--label',
    'mallory',
    'asked',
    '--',
    'sh',
    '-c',
    'echo ready; exec sleep 600',
  ])
  await holder.printed(/ready/)
  const refused = home.terminal('"$NODE" "$RINGFENCE" release --force asked')
  await refused.printed(/'asked' is held by mallory \(sh\) \(for .*\[y\/N\]/s)
  refused.type('n\n')
  expect(await refused.ended).toMatchObject({ code: 1 })
  expect(await home.run(['status', 'asked'])).toMatchObject({ code: 0 })
  const agreed = home.terminal('"$NODE" "$RINGFENCE" release --force asked')
  await agreed.printed(/\[y\/N\]/)
  agreed.type('y\n')
  expect(await agreed.ended).toMatchObject({ code: 0 })
  expect(agreed.stdout).toContain("released 'asked' of mallory")
  expect(await holder.ended).toMatchObject({ code: 195 })
})

test('advise asks its questions on the terminal', async () => {
  const terminal = home.terminal('"$NODE" "$RINGFENCE" advise')
  for (const [question, answer] of [
    [/What does the lock protect/, '3'],
    [/two do it at once/, '1'],
    [/Where does it run/, 'nonsense'],
    [/expected 1 to 2[^]*Where does it run/, '1'],
  ] as const) {
    await terminal.printed(question)
    terminal.type(`${answer}\n`)
  }
  expect(await terminal.ended).toMatchObject({ code: 0 })
  expect(terminal.stdout).toContain('Use the embedded file engine.')
})

function commandLine(pid: number): string {
  return isGone(pid) ? '' : readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
}
