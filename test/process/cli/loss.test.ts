import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { Home, sharedNow, type Command } from '../../../harness/command.ts'
import { isGone, processTree } from '../../../harness/process-tree.ts'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

/**
 * A command that is hard to get rid of: it and its children ignore TERM; one of them is in a process group of its own
 * (`timeout` does that), one in a session of its own.
 */
const STUBBORN = `
trap '' TERM
sleep 600 &
timeout 600 sleep 600 &
setsid sleep 600 &
echo "started $$ $RINGFENCE_DEADLINE_FILE"
while :; do sleep 1; done
`
/** sh, three sleeps, timeout, and the sleep of the loop. */
const STUBBORN_SIZE = 6
const TTL = ['--ttl', '3s', '--grace', '500ms']
/** So that what happens at once, on a busy machine too, can be told from what happens when it is over. */
const LONG = ['--ttl', '60s']
const AT_ONCE_MS = 15_000

let server: RedisServer
let home: Home

beforeAll(async () => {
  server = await startRedis()
  home = new Home({ RINGFENCE_URL: server.url })
})
afterAll(async () => {
  await home[Symbol.asyncDispose]()
  await server.stop()
})

interface Started {
  readonly command: Command
  readonly pid: number
  readonly deadlineFile: string
  readonly family: readonly number[]
}

async function startStubborn(resource: string, ttl: readonly string[] = TTL): Promise<Started> {
  const command = home.start(['run', ...ttl, resource, '--', 'sh', '-c', STUBBORN])
  const [pid, deadlineFile] = (await command.printed(/started (.*)\n/)).split(' ') as [string, string]
  await until(() => processTree(Number(pid)).length >= STUBBORN_SIZE, { what: 'the whole family is there' })
  return { command, pid: Number(pid), deadlineFile, family: processTree(Number(pid)) }
}

/** When the last of them was gone, and until when the lease was valid, both by the clock of the deadline file. */
async function watchedToDeath({ family, deadlineFile }: Started): Promise<{ goneMs: number; untilMs: number }> {
  let untilMs = 0
  let goneMs = 0
  const allGone = (): boolean => {
    untilMs = Math.max(untilMs, deadlineOf(deadlineFile) ?? 0)
    goneMs = sharedNow().ms
    return family.every(isGone)
  }
  await until(allGone, { what: 'all of them are gone', everyMs: 2, withinMs: 20_000 })
  return { goneMs, untilMs }
}

function deadlineOf(file: string): number | undefined {
  try {
    return Number(readFileSync(file, 'utf8').split(' ')[1])
  } catch {
    return undefined
  }
}

test.each(['killed', 'frozen'] as const)(
  'when the engine is %s, nothing of the command is alive when validity ends',
  async (how) => {
    const started = await startStubborn(`engine-${how}`)
    await (how === 'killed' ? server.kill() : server.freeze())
    try {
      const { goneMs, untilMs } = await watchedToDeath(started)
      expect(goneMs).toBeLessThanOrEqual(untilMs)
      expect(await started.command.ended).toMatchObject({
        code: EXIT.lost,
        stderr: expect.stringMatching(
          /^ringfence: the lease cannot be renewed and ends in \d\S* m?s; stopping the command$/m,
        ) as string,
      })
    } finally {
      await (how === 'killed' ? server.restart() : server.thaw())
    }
  },
)

test('when ringfence is stopped, nothing of the command is alive when validity ends, nor when the next one is let in', async () => {
  const started = await startStubborn('stopped')
  const { command, family } = started
  const check = `for pid in ${family.join(' ')}; do
    if [ -e /proc/$pid/stat ] && ! grep -q ') Z ' /proc/$pid/stat; then echo "$pid lives"; fi
  done; echo in`
  const next = home.start(['run', ...TTL, 'stopped', '--', 'sh', '-c', check])
  await command.stop()
  const { goneMs, untilMs } = await watchedToDeath(started)
  expect(goneMs).toBeLessThanOrEqual(untilMs)
  expect(await next.ended).toMatchObject({ code: 0, stdout: 'in\n' })
  // It wakes up late, and does not pretend that all went well.
  command.signal('SIGCONT')
  expect(await command.ended).toMatchObject({ code: EXIT.lost })
})

test('a short stop of ringfence costs nothing', async () => {
  const command = home.start(['run', ...TTL, 'nap', '--', 'sh', '-c', 'echo ready; read -r _; exit 9'])
  await command.printed(/ready/)
  await command.stop()
  command.signal('SIGCONT')
  command.type('\n')
  expect(await command.ended).toMatchObject({ code: 9, stderr: '' })
})

test('when ringfence is killed with SIGKILL, nothing of the command lives on, and no file is left', async () => {
  const started = await startStubborn('killed', LONG)
  started.command.signal('SIGKILL')
  const killedMs = sharedNow().ms
  const { goneMs, untilMs } = await watchedToDeath(started)
  expect(goneMs).toBeLessThan(untilMs)
  expect(goneMs - killedMs).toBeLessThan(AT_ONCE_MS)
  await until(() => deadlineOf(started.deadlineFile) === undefined, { what: 'the deadline file is removed' })
})

test('a watchdog that is killed is replaced by another', async () => {
  const started = await startStubborn('unwatched', LONG)
  // It is at work when it has two halves: one counts, the other one hears of our end.
  const halves = (): number[] =>
    processTree(started.command.pid).filter((pid) => commandLine(pid).includes('/sh -s --'))
  await until(() => halves().length === 2, { what: 'there is a watchdog' })
  const before = halves()
  process.kill(before[0]!, 'SIGKILL')
  const others = (): number[] => halves().filter((pid) => !before.includes(pid))
  await until(() => others().length === 2, { what: 'there is another' })
  started.command.signal('SIGKILL')
  const killedMs = sharedNow().ms
  expect((await watchedToDeath(started)).goneMs - killedMs).toBeLessThan(AT_ONCE_MS)
})

function commandLine(pid: number): string {
  return isGone(pid) ? '' : readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
}

test('a command that was asked by TERM has its grace to tidy up, once, and the code still says that the lease was lost', async () => {
  const polite = `trap 'echo asked; sleep 0.2; echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.02; done`
  const command = home.start(['run', '--ttl', '3s', '--grace', '1s', 'polite', '--', 'sh', '-c', polite])
  await command.printed(/ready/)
  await server.freeze()
  try {
    expect(await command.ended).toMatchObject({ code: EXIT.lost, stdout: 'ready\nasked\ntidy\n' })
  } finally {
    await server.thaw()
  }
})

test('--on-doubt stop ends the command at the first renewal that fails, and keeps the lease until it is gone', async () => {
  const tidies = `trap 'echo asked; read -r _; echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.02; done`
  const options = [
    '--ttl',
    '9s',
    '--grace',
    '4500ms',
    '--on-doubt',
    'stop',
    '--on-lost',
    'echo "lost: $RINGFENCE_REASON"',
  ]
  const command = home.start(['run', ...options, 'doubted', '--', 'sh', '-c', tidies])
  await command.printed(/ready/)
  await server.cli('ACL', 'SETUSER', 'default', '-@write')
  try {
    await command.printed(/asked/)
    expect(await server.cli('EXISTS', 'doubted')).toBe('1')
  } finally {
    await server.cli('ACL', 'SETUSER', 'default', '+@write')
  }
  command.type('\n')
  expect(await command.ended).toMatchObject({
    code: EXIT.lost,
    stdout: 'ready\nasked\ntidy\nlost: doubtful\n',
    stderr: expect.stringContaining(
      'the lease could not be renewed, and --on-doubt says stop; stopping the command',
    ) as string,
  })
  expect(await server.cli('EXISTS', 'doubted')).toBe('0')
})

test('--on-doubt stop says that the lease ends by itself where the engine does not answer its release', async () => {
  const options = ['--ttl', '9s', '--grace', '1s', '--on-doubt', 'stop']
  const command = home.start(['run', ...options, 'silent', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await command.printed(/ready/)
  await server.freeze()
  try {
    expect(await command.ended).toMatchObject({
      code: EXIT.lost,
      stderr: expect.stringContaining(
        'the lease could not be released, so it ends by itself, at the latest 9.0 s after the engine answers again: ',
      ) as string,
    })
  } finally {
    await server.thaw()
  }
})

test('a lease that was taken away stops the command and runs --on-lost, which is told why', async () => {
  const onLost = 'echo "lost $RINGFENCE_RESOURCE: $RINGFENCE_REASON"'
  const command = home.start([
    'run',
    ...TTL,
    '--on-lost',
    onLost,
    'stolen',
    '--',
    'sh',
    '-c',
    'echo ready; exec sleep 600',
  ])
  await command.printed(/ready/)
  await server.cli('DEL', 'stolen')
  expect(await command.ended).toMatchObject({
    code: EXIT.lost,
    stdout: 'ready\nlost stolen: stolen\n',
    stderr: expect.stringContaining('no longer ours: somebody took it, or servers forgot it') as string,
  })
})

test('a lease that was taken away unnoticed is told when the command has ended', async () => {
  const command = home.start(['run', 'unnoticed', '--', 'sh', '-c', 'echo ready; read -r _; exit 0'])
  await command.printed(/ready/)
  await server.cli('SET', 'unnoticed', 'somebody else')
  command.type('\n')
  expect(await command.ended).toMatchObject({
    code: EXIT.lost,
    stderr: expect.stringContaining('it may not have been alone') as string,
  })
  await server.cli('DEL', 'unnoticed')
})

test('a job of --once whose lease was taken away unnoticed is told when it has ended', async () => {
  const command = home.start(['run', '--once', 'unnoticed job', '--', 'sh', '-c', 'echo ready; read -r _; exit 0'])
  await command.printed(/ready/)
  await server.cli('SET', 'unnoticed job', 'somebody else')
  command.type('\n')
  expect(await command.ended).toMatchObject({
    code: EXIT.lost,
    stderr: expect.stringContaining('it may not have been alone') as string,
  })
  await server.cli('DEL', 'unnoticed job')
})

test('--once --at-least keeps the job for that time since it began, not for its whole ttl', async () => {
  const job = ['run', '--once', '--at-least', '3s', 'tick', '--', 'echo', 'ran']
  expect(await home.run(job)).toMatchObject({ code: 0, stdout: 'ran\n', stderr: '' })
  expect(Number(await server.cli('PTTL', 'tick'))).toBeLessThanOrEqual(3000)
  await until(async () => (await home.run(job)).code === 0, { what: 'the next run', withinMs: 20_000 })
})

test('--max-hold ends the lease and the command with it', async () => {
  const command = home.start(['run', ...TTL, '--max-hold', '1500ms', 'long', '--', 'sleep', '600'])
  expect(await command.ended).toMatchObject({
    code: EXIT.lost,
    stderr: expect.stringContaining('the lease was held for as long as --max-hold allows') as string,
  })
})

test('ringfence held says yes while the lease is held, and no when ringfence is stopped past its end', async () => {
  const ask = `echo "ready $$"; while "$NODE" "$RINGFENCE" held; do :; done; echo no; exec sleep 600`
  // In a session of its own and without the mark by which it is found, so that somebody is left to ask.
  const hidden = `env -u RINGFENCE_OWNER setsid sh -c '${ask}' & exec sleep 600`
  const command = home.start(['run', ...TTL, 'asked', '--', 'sh', '-c', hidden])
  const asker = Number(await command.printed(/ready (\d+)\n/))
  await until(async () => Number(await server.cli('PTTL', 'asked')) < 2200, { what: 'time has passed' })
  await until(async () => Number(await server.cli('PTTL', 'asked')) > 2500, { what: 'it was renewed' })
  expect(command.stdout).toBe(`ready ${asker}\n`)
  await command.stop()
  await command.printed(/no\n/)
  process.kill(asker, 'SIGKILL')
  command.signal('SIGCONT')
  expect(await command.ended).toMatchObject({ code: EXIT.lost })
})

test('what the command leaves running is ended before the lease is released, except for daemons', async () => {
  const leaves = 'sleep 600 & echo "rest $!"; setsid sleep 600 & sleep 0.1; echo "daemon $!"'
  const { code, stdout, stderr } = await home.run(['run', ...TTL, 'leaves', '--', 'sh', '-c', leaves])
  const [rest, daemon] = [/rest (\d+)/, /daemon (\d+)/].map((pattern) => Number(pattern.exec(stdout)?.[1]))
  expect(code).toBe(0)
  expect(stderr).toContain('the command left processes behind')
  expect(isGone(rest!)).toBe(true)
  expect(isGone(daemon!)).toBe(false)
  process.kill(daemon!, 'SIGKILL')
})

test('a leader that loses is stopped, and its command runs again when it is elected again', async () => {
  const term = 'echo "term $RINGFENCE_TOKEN"; exec sleep 600'
  const first = home.start(['elect', ...TTL, 'leader', '--', 'sh', '-c', term])
  const token = BigInt(await first.printed(/term (\d+)\n/))
  const second = home.start(['elect', ...TTL, 'leader', '--', 'sh', '-c', term])
  await server.cli('SET', 'leader', 'somebody else', 'PX', '3000')
  await until(() => first.stderr.includes('somebody took it'), { what: 'the first has noticed' })
  // The usurper's time runs out, and one of the two leads again.
  const again = await until(
    () =>
      [/term \d+\n[^]*term (\d+)\n/.exec(first.stdout)?.[1], /term (\d+)\n/.exec(second.stdout)?.[1]].find(
        (found) => found !== undefined,
      ),
    { what: 'somebody leads again', withinMs: 20_000 },
  )
  expect(BigInt(again)).toBeGreaterThan(token)
  first.signal('SIGTERM')
  expect(await first.ended).toMatchObject({ code: 143 })
  await second.printed(/term (\d+)\n/)
  second.signal('SIGTERM')
  expect(await second.ended).toMatchObject({ code: 143 })
})

const CROWD = 50

// Here, and not in a file of its own: its load would delay what the tests above expect in time. Fifty starts of Node on
// two cores take some ten seconds, on a busy machine several times that.
test('of 50 processes that start at once exactly one runs at a time, each once, with growing tokens', async () => {
  await using embedded = new Home()
  // A folder can be made once: the second of two at a time would fail to.
  const section = 'mkdir inside || exit 9; echo "$RINGFENCE_TOKEN" >>log; sleep 0.01; rmdir inside'
  const crowd = Array.from({ length: CROWD }, () => embedded.run(['run', 'crowd', '--', 'sh', '-c', section]))
  expect((await Promise.all(crowd)).map(({ code, stderr }) => ({ code, stderr }))).toEqual(
    Array.from({ length: CROWD }, () => ({ code: 0, stderr: '' })),
  )
  const tokens = readFileSync(embedded.file('log'), 'utf8').trim().split('\n').map(BigInt)
  expect(tokens).toHaveLength(CROWD)
  expect([...tokens].sort((some, other) => (some < other ? -1 : 1))).toEqual(tokens)
  expect(new Set(tokens).size).toBe(CROWD)
}, 180_000)
