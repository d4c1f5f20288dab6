import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { Home } from '../../../harness/command.ts'
import { startRedis } from '../../../harness/servers/redis.ts'
import { EXIT } from '../../../src/cli/exit-codes.ts'

const root = path.resolve(import.meta.dirname, '../../..')
const run = promisify(execFile)

/** Two sections that would lose an update together, a lock that is extended, and one that is held by someone else. */
const PROGRAM = `import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import Redlock from 'redlock'

const redis = new Redis(process.env.REDIS_URL)
const redlock = new Redlock([redis], { retryCount: 100, retryDelay: 50 })
let count = 0

async function add() {
  await redlock.using(['count'], 5000, async (signal) => {
    const before = count
    await sleep(20)
    if (signal.aborted) throw signal.error
    count = before + 1
  })
}

await Promise.all([add(), add(), add()])
console.log('count', count)

let lock = await redlock.acquire(['a', 'b'], 2000)
lock = await lock.extend(60000)
console.log('left', (await redis.pttl('a')) > 30000, lock.resources.join())
try {
  const other = await redlock.acquire(['b'], 1000, { retryCount: 0 })
  await other.release()
} catch {
  console.log('held')
}
await redlock.release(lock)
console.log('exists', await redis.exists('a', 'b', 'count'))
redis.disconnect()
`
const PRINTED = 'count 3\nleft true a,b\nheld\nexists 0\n'

/** A project with that program, and with what it needs among its modules. */
function projectIn(home: Home): string {
  for (const name of ['ringfence', 'ioredis', 'redlock']) {
    mkdirSync(home.file('node_modules'), { recursive: true })
    symlinkSync(name === 'ringfence' ? root : path.join(root, 'node_modules', name), home.file(`node_modules/${name}`))
  }
  mkdirSync(home.file('src/deep'), { recursive: true })
  writeFileSync(home.file('package.json'), '{ "type": "module" }')
  writeFileSync(home.file('src/deep/count.js'), PROGRAM)
  writeFileSync(
    home.file('src/watched.js'),
    "import Redlock from 'redlock'\nexport const locks = new Redlock([client])\n",
  )
  writeFileSync(home.file('src/other.js'), 'export const other = 1\n')
  return home.file('src/deep/count.js')
}

test('migrate redlock says which files it could not read, and exits with 1', async () => {
  await using home = new Home()
  mkdirSync(home.file('src'))
  writeFileSync(home.file('src/broken.js'), "import {{ 'redlock'\n")
  writeFileSync(home.file('src/good.js'), "import Redlock from 'redlock'\n")
  const told = await home.run(['migrate', 'redlock', 'src', '--write'])
  expect(told).toMatchObject({
    code: EXIT.no,
    stdout: expect.stringMatching(/^src\/broken\.js:1: left: cannot be read: /m) as string,
    stderr: expect.stringMatching(/^ringfence: 1 file could not be read\n {2}next: put right what is said/m) as string,
  })
  expect(readFileSync(home.file('src/good.js'), 'utf8')).toBe("import Redlock from 'ringfence/redlock'\n")
})

test.each([
  { options: [], imports: ["import Redlock from 'ringfence/redlock'"] },
  { options: ['--api'], imports: ["import { createLocks } from 'ringfence'", 'import { redis as redisEngine } from'] },
])('migrate redlock $options: nothing without --write; what it writes does what the program did', async (mode) => {
  await using server = await startRedis()
  await using home = new Home()
  const file = projectIn(home)
  const play = (): Promise<{ stdout: string }> => run(process.execPath, [file], { env: { REDIS_URL: server.url } })
  expect((await play()).stdout).toBe(PRINTED)

  const args = ['migrate', ...mode.options, 'redlock', 'src']
  const tried = await home.run(args)
  expect(tried).toMatchObject({
    code: 0,
    stderr: 'ringfence: 2 files to rewrite; nothing is changed without --write\n',
  })
  expect(tried.stdout).toMatch(/^src\/deep\/count\.js:3: /)
  expect(readFileSync(file, 'utf8')).toBe(PROGRAM)

  const written = await home.run([...args, '--write'])
  expect(written).toMatchObject({ code: 0, stdout: tried.stdout, stderr: 'ringfence: 2 files rewritten\n' })
  for (const text of mode.imports) expect(readFileSync(file, 'utf8')).toContain(text)
  expect((await play()).stdout).toBe(PRINTED)

  const again = await home.run([...args, '--write', '--json'])
  const { files } = JSON.parse(again.stdout) as { files: { done: unknown[] }[] }
  expect(files.flatMap(({ done }) => done)).toEqual([])
})

test('migrate redlock: lists what it leaves, with file and line, and says what it needs', async () => {
  await using home = new Home()
  projectIn(home)
  const { stdout } = await home.run(['migrate', '--api', 'redlock', 'src/watched.js'])
  expect(stdout).toBe(
    "src/watched.js:1: now from 'ringfence/redlock'\nsrc/watched.js:2: left: keeps redlock's API: locks is exported: other files use it\n",
  )
  for (const [args, message] of [
    [['migrate'], 'expected redlock, got nothing'],
    [['migrate', 'flock', 'src'], 'expected redlock, got flock'],
    [['migrate', 'redlock'], 'expected files or folders'],
    [['migrate', 'redlock', 'nowhere'], "expected a file or a folder, got 'nowhere' (ENOENT)"],
  ] as const) {
    const { code, stderr } = await home.run(args)
    expect([code, stderr]).toEqual([EXIT.usage, expect.stringContaining(message)])
  }
})
