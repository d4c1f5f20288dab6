import { chownSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { Home, type Command } from '../../harness/command.ts'
import { isGone, processTree } from '../../harness/process-tree.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { EXIT } from '../../src/cli/exit-codes.ts'
import { hasNamespaces, unshared, unsharedAfter } from '../engines/file/setup.ts'

const read = (name: string): string =>
  readFileSync(path.resolve(import.meta.dirname, '../../docs/operating', name), 'utf8')

/** Process numbers of its own, as in a container: what it starts first is process 1. */
const ALONE = ['--pid', '--fork', '--kill-child', '--mount-proc']
/** The root cannot be written to; there is a tmpfs at /run for what is mounted there. */
const READ_ONLY = `mount -t tmpfs tmpfs /run && mkdir /run/ringfence && mount --bind "$HOME" "$HOME" &&
  mount -o remount,bind,ro "$HOME" && mount -o remount,bind,ro /`
/** In the place of tini: passes TERM on, and reaps what it is given. */
const INIT = `#!/bin/sh
shift
"$@" & child=$!
trap 'kill -TERM $child' TERM
while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || exit $code; done
`

let server: RedisServer
let home: Home

beforeAll(async () => {
  server = await startRedis()
  home = new Home({ RINGFENCE_URL: server.url })
  // Within a namespace another user's folder would be out of reach.
  chownSync(home.folder, process.getuid!(), process.getgid!())
  writeFileSync(home.file('tini'), INIT, { mode: 0o755 })
})
afterAll(async () => {
  await home[Symbol.asyncDispose]()
  await server.stop()
})

/** What is process 1 within, by its number here. */
async function firstProcess(container: Command): Promise<number> {
  return until(() => processTree(container.pid)[1], { what: 'process 1' })
}

const isHeld = async (name: string): Promise<boolean> => (await server.cli('EXISTS', name)) === '1'

// They use one server and nothing else of each other's.
describe.skipIf(!hasNamespaces).concurrent('docs/operating/running.md: containers', { timeout: 60_000 }, () => {
  test('as process 1 ringfence passes TERM on, waits for the command, releases, and exits with its code', async () => {
    const script = 'trap "echo stopping; read -r word; exit 7" TERM; echo ready; while :; do sleep 0.05; done'
    const container = home.start(['run', 'stopped', '--', 'sh', '-c', script], { under: unshared(...ALONE) })
    await container.printed(/ready/)
    process.kill(await firstProcess(container), 'SIGTERM')
    await container.printed(/stopping/)
    // For as long as the command takes, whatever `--grace` says.
    expect(await isHeld('stopped')).toBe(true)
    container.endInput()
    expect(await container.ended).toMatchObject({ code: 7 })
    expect(await isHeld('stopped')).toBe(false)
  })

  test('a shell as process 1 does not pass TERM on', async () => {
    const script = 'trap "echo stopping; exit 7" TERM; echo ready; read -r word; echo went on'
    const container = home.start(['run', 'unaware', '--', 'sh', '-c', script], {
      under: [...unshared(...ALONE), 'sh', '-c', '"$@"; exit $?', 'sh'],
    })
    await container.printed(/ready/)
    process.kill(await firstProcess(container), 'SIGTERM')
    container.endInput()
    expect(await container.ended).toMatchObject({ code: 0, stdout: 'ready\nwent on\n' })
  })

  test('KILL to process 1 ends all of it at once, and the lease stays until its ttl is over', async () => {
    const container = home.start(['run', 'killed', '--', 'sh', '-c', 'trap "" TERM; echo ready; sleep 60'], {
      under: unshared(...ALONE),
    })
    await container.printed(/ready/)
    const tree = processTree(container.pid)
    process.kill(await firstProcess(container), 'SIGKILL')
    await until(() => tree.every(isGone), { what: 'all of it is gone' })
    expect(await isHeld('killed')).toBe(true)
  })

  const ORPHANS = `
    state() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1; }
    orphan() { sh -c 'sleep 0 >/dev/null & echo $!'; }
    one=$(orphan) two=$(orphan)
    until [ "$(state "$one")$(state "$two")" = "$1" ]; do sleep 0.05; done
    grep -c 'PPid:.1$' "/proc/$one/status" "/proc/$two/status" 2>/dev/null || true`

  test.each([
    { first: 'ringfence itself', isInit: false, states: 'ZZ', adopted: 2 },
    { first: 'an init', isInit: true, states: '', adopted: 0 },
  ])('orphans whose process 1 is $first end as "$states"', async ({ isInit, states, adopted }) => {
    const ended = await home.run(['run', `orphans${adopted}`, '--', 'sh', '-c', ORPHANS, 'sh', states], {
      under: [...unshared(...ALONE), ...(isInit ? [home.file('tini'), '--'] : [])],
    })
    expect(ended).toMatchObject({ code: 0 })
    expect(ended.stdout.match(/:1$/gm) ?? []).toHaveLength(adopted)
  })

  test('without a shell that it can start it says so, and gives the lease back', async () => {
    const under = unsharedAfter('mount --bind /dev/null "$(readlink -f /bin/sh)"', '--mount')
    const ended = await home.run(['run', 'no-shell', '--', '/bin/true'], { under })
    expect(ended).toMatchObject({ code: EXIT.failed, stderr: expect.stringContaining('/bin/sh') as string })
    expect(await isHeld('no-shell')).toBe(false)
  })

  test('with a read-only root it needs a TMPDIR to write to; without one it locks nothing', async () => {
    const under = unsharedAfter(READ_ONLY, '--mount')
    const tries = ['run', 'read-only', '--', 'sh', '-c', 'touch "$HOME/file" || echo refused']
    const without = await home.run(tries, { under })
    expect(without).toMatchObject({ code: EXIT.failed, stderr: expect.stringMatching(/EROFS.*\n.*TMPDIR/) as string })
    expect(await server.cli('EXISTS', 'ringfence:fence:{read-only}', 'ringfence:fence:read-only')).toBe('0')
    const mounted = await home.run(tries, { under, env: { TMPDIR: '/run/ringfence' } })
    expect(mounted).toMatchObject({ code: 0, stdout: 'refused\n' })
  })

  test.each([
    ['Dockerfile', ...fromDockerfile(read('Dockerfile'))],
    ...parseAllDocuments(read('kubernetes.yaml')).map((document) => fromManifest(document.toJS() as Manifest)),
  ] as const)(
    'what the %s starts takes its lease with a read-only root, and ends by TERM',
    async (name, argv, TMPDIR) => {
      expect(argv.slice(0, 3)).toEqual(['tini', '--', 'ringfence'])
      // What it would run is not here.
      const args = argv.slice(3, argv.lastIndexOf('--') + 1)
      const script = 'trap "exit 0" TERM; echo ready; while :; do sleep 0.05; done'
      const container = home.start([...args, 'sh', '-c', script], {
        under: [...unsharedAfter(READ_ONLY, '--mount', ...ALONE), home.file('tini'), '--'],
        env: { TMPDIR, RINGFENCE_URL: `${server.url}?prefix=${name}:` },
      })
      await container.printed(/ready/)
      process.kill(await firstProcess(container), 'SIGTERM')
      expect(await container.ended).toMatchObject({
        code: 0,
        stderr: expect.not.stringContaining('ringfence:') as string,
      })
    },
  )
})

type Started = [name: string, argv: string[], folder: string]

function fromDockerfile(text: string): [argv: string[], folder: string] {
  const words = (name: string): string[] => JSON.parse(new RegExp(`^${name} (.*)$`, 'm').exec(text)![1]!) as string[]
  return [[...words('ENTRYPOINT'), ...words('CMD')], /^ENV TMPDIR=(.*)$/m.exec(text)![1]!]
}

interface Pod {
  spec: { containers: { command: string[]; env: { name: string; value: string }[] }[] }
}

interface Manifest {
  kind: string
  spec: { template: Pod } | { jobTemplate: { spec: { template: Pod } } }
}

function fromManifest({ kind, spec }: Manifest): Started {
  const { template } = 'template' in spec ? spec : spec.jobTemplate.spec
  const { command, env } = template.spec.containers[0]!
  return [kind, command, env.find(({ name }) => name === 'TMPDIR')!.value]
}
