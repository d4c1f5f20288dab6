import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { describe, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { hasNamespaces, unsharedAfter } from '../../engines/file/setup.ts'
import { Home } from '../../../harness/command.ts'
import { serverUser } from '../../../harness/temporary-folder.ts'

const isRoot = process.getuid!() === 0

describe('a config file that nobody named', () => {
  test.skipIf(!isRoot)('and that someone else has put here is not obeyed', async () => {
    await using elsewhere = new Home()
    const config = elsewhere.file('ringfence.json')
    writeFileSync(config, JSON.stringify({ engine: `file:${elsewhere.file('attacker.db')}` }))
    expect(await elsewhere.run(['status'])).toMatchObject({ code: 0 })
    chownSync(config, 65_534, 65_534)
    const refused = await elsewhere.run(['status'])
    expect(refused.stderr).toMatch(
      /^ringfence: \.\/ringfence\.json is not obeyed: it belongs to the user 65534, .*\n {2}next: .*--config ringfence\.json\n$/,
    )
    expect(refused.code).toBe(EXIT.usage)
    expect(await elsewhere.run(['status', '--config', 'ringfence.json'])).toMatchObject({ code: 0 })
    expect(await elsewhere.run(['status'], { user: { uid: 65_534, gid: 65_534 } })).toMatchObject({ code: 0 })
  })

  test('in the home of another user says how to go on', async () => {
    await using elsewhere = new Home()
    mkdirSync(elsewhere.file('home/ringfence'), { recursive: true })
    writeFileSync(elsewhere.file('home/ringfence/config.json'), '{}')
    chmodSync(elsewhere.file('home/ringfence'), 0)
    chmodSync(elsewhere.folder, 0o755)
    const env = { XDG_CONFIG_HOME: elsewhere.file('home') }
    const { code, stderr } = await elsewhere.run(['status'], { env, user: serverUser() })
    expect(stderr).toMatch(
      /^ringfence: the config file .* cannot be read: EACCES.*\n {2}next: if HOME or XDG_CONFIG_HOME is of/,
    )
    expect(code).toBe(EXIT.usage)
  })

  test.skipIf(!isRoot)('is not obeyed either where someone else has linked to a file of ours', async () => {
    await using elsewhere = new Home()
    writeFileSync(elsewhere.file('mine.json'), '{}')
    symlinkSync('mine.json', elsewhere.file('ringfence.json'))
    expect(await elsewhere.run(['status'])).toMatchObject({ code: 0 })
    execFileSync('chown', ['-h', '65534:65534', elsewhere.file('ringfence.json')])
    expect(await elsewhere.run(['status'])).toMatchObject({
      code: EXIT.usage,
      stderr: expect.stringContaining('is not obeyed') as string,
    })
  })

  test('and is a pipe, a socket or a folder is never opened', async () => {
    await using elsewhere = new Home()
    const there = elsewhere.file('ringfence.json')
    const refused = async (kind: string): Promise<void> => {
      expect(await elsewhere.run(['status'])).toEqual({
        code: EXIT.usage,
        signal: null,
        stdout: '',
        stderr: `ringfence: the config file ringfence.json cannot be read: it is ${kind}, and no regular file\n  next: remove it or rename it\n`,
      })
      execFileSync('rm', ['-r', there])
    }
    execFileSync('mkfifo', [there])
    await refused('a pipe')
    mkdirSync(there)
    await refused('a folder')
    symlinkSync('/dev/zero', there)
    await refused('a device')
    const server = createServer()
    await new Promise<void>((resolve) => void server.listen(there, resolve))
    await refused('a socket')
    server.close()
  })

  test.skipIf(!isRoot)('and is a pipe of someone else does not hold the command up', async () => {
    await using elsewhere = new Home()
    execFileSync('mkfifo', [elsewhere.file('ringfence.json')])
    chownSync(elsewhere.file('ringfence.json'), 65_534, 65_534)
    const { code, stderr } = await elsewhere.run(['status'])
    expect(stderr).toContain('./ringfence.json is not obeyed: it belongs to the user 65534')
    expect(code).toBe(EXIT.usage)
    // These know no config.
    const env = { RINGFENCE_DEADLINE_FILE: elsewhere.file('none') }
    expect((await elsewhere.run(['held'], { env })).code).toBe(1)
    expect((await elsewhere.run(['completion', 'bash'])).code).toBe(0)
  })

  test.skipIf(!isRoot)('does not count where the engine is named: a line says that it was not read', async () => {
    await using elsewhere = new Home()
    writeFileSync(elsewhere.file('ringfence.json'), JSON.stringify({ wait: 'nonsense' }))
    chownSync(elsewhere.file('ringfence.json'), 65_534, 65_534)
    const engine = `file:${elsewhere.file('own.db')}`
    const job = ['x', '--', 'echo', 'hi']
    const told = {
      code: 0,
      stdout: 'hi\n',
      stderr: expect.stringMatching(
        /^ringfence: \.\/ringfence\.json is not obeyed: .*; it is passed over, since the engine was named\n$/,
      ) as string,
    }
    expect(await elsewhere.run(['run', '-e', engine, ...job])).toMatchObject(told)
    expect(await elsewhere.run(['run', ...job], { env: { RINGFENCE_URL: engine } })).toMatchObject(told)
    expect(await elsewhere.run(['run', '-q', '-e', engine, ...job])).toMatchObject({ ...told, stderr: '' })
    const named = await elsewhere.run(['run', '-e', engine, '--config', 'nowhere.json', ...job])
    expect(named).toMatchObject({ code: EXIT.usage, stdout: '' })
  })

  test('in a folder that this user may not search', async () => {
    await using elsewhere = new Home()
    mkdirSync(elsewhere.file('closed'))
    mkdirSync(elsewhere.file('state'), { mode: 0o777 })
    chmodSync(elsewhere.file('state'), 0o777)
    chmodSync(elsewhere.folder, 0o755)
    // Entered while it was open.
    const under = ['sh', '-c', 'cd closed && chmod 0 . && exec "$@"', 'sh', ...as(serverUser())]
    const { code, stderr } = await elsewhere.run(['status'], { under })
    expect(stderr).toMatch(
      /^ringfence: the config file ringfence\.json cannot be read: EACCES.*\n {2}next: run it in a folder /,
    )
    expect(code).toBe(EXIT.usage)
    chmodSync(elsewhere.file('closed'), 0o755)
    const engine = `file:${elsewhere.file('state/own.db')}`
    const named = await elsewhere.run(['status', '-e', engine], { under })
    expect(named.stderr).toMatch(
      /^ringfence: the config file ringfence\.json cannot be read: EACCES.* is passed over, .*\n$/,
    )
    expect(named.code).toBe(0)
  })
})

describe('where an engine must be named', () => {
  const job = ['run', '--verbose', 'x', '--', 'echo', 'hi']

  test('by a variable, nothing is run without one, and --engine file: still asks for a local lock', async () => {
    await using home = new Home()
    const env = { RINGFENCE_REQUIRE_ENGINE: '1' }
    const { code, stdout, stderr } = await home.run(job, { env })
    expect(stderr).toContain('\nringfence: requireEngine: 1, from RINGFENCE_REQUIRE_ENGINE\n')
    expect(stderr).toMatch(
      /no engine is named, .*\(RINGFENCE_REQUIRE_ENGINE; no config file was found\)\n {2}next: set /,
    )
    expect({ code, stdout }).toEqual({ code: EXIT.usage, stdout: '' })
    expect(readdirSync(home.folder)).toEqual([])
    const local = await home.run([...job.slice(0, 1), '-e', `file:${home.file('own.db')}`, ...job.slice(1)], { env })
    expect(local).toMatchObject({ code: 0, stdout: 'hi\n' })
  })

  test.skipIf(!hasNamespaces)('by the file of the machine, which counts behind all others', async () => {
    await using home = new Home()
    chmodSync(home.folder, 0o777)
    writeFileSync(home.file('machine.json'), JSON.stringify({ requireEngine: true, ttl: '9s', label: 'web-1' }))
    // An /etc of its own.
    const copied = `mount -t tmpfs tmpfs /etc && mkdir /etc/ringfence && cp machine.json ${MACHINE}`
    const under = unsharedAfter(copied, '--mount')
    const refused = await home.run(job, { under })
    expect(refused.stderr).toContain(`(requireEngine, in ${MACHINE}; read: ${MACHINE})\n  next: set RINGFENCE_URL`)
    expect(refused).toMatchObject({ code: EXIT.usage, stdout: '' })
    writeFileSync(home.file('ringfence.json'), JSON.stringify({ ttl: '8s', engine: `file:${home.file('own.db')}` }))
    const allowed = await home.run(job, { under })
    expect(allowed.stderr.split('\n')).toEqual([
      `ringfence: config files: ringfence.json, ${MACHINE}`,
      'ringfence: ttl: 8s, from ttl, in ringfence.json',
      `ringfence: label: web-1, from label, in ${MACHINE}`,
      `ringfence: requireEngine: true, from requireEngine, in ${MACHINE}`,
      `ringfence: engine: file:${home.file('own.db')}, from engine, in ringfence.json`,
      '',
    ])
    expect(allowed).toMatchObject({ code: 0, stdout: 'hi\n' })
  })
})

const MACHINE = '/etc/ringfence/config.json'

/** What runs a command as another user, where this one is root. */
function as({ uid, gid }: { uid?: number; gid?: number }): string[] {
  return uid === undefined ? [] : ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups']
}
