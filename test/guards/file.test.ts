import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { openDatabase } from '../../src/engines/file/database.ts'
import { systemRandom } from '../../src/random.ts'
import { file } from '../../src/engines/file/index.ts'
import { fileGuard, type FileGuard } from '../../src/guards/index.ts'
import { createLocks } from '../../src/index.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { freshResource, guardSuite, leaseOf, type Bench } from './suite.ts'

let folder: string
const opened: FileGuard[] = []

beforeAll(() => {
  folder = createFolder('fileguard')
  mkdirSync(`${folder}/values`)
})

afterEach(async () => {
  for (const guard of opened.splice(0)) await guard.close()
})

afterAll(() => removeFolder(folder))

function guardOf(...[options]: Parameters<Bench<FileGuard>['guard']>): FileGuard {
  const guard = fileGuard(`${folder}/fences.db`, options)
  opened.push(guard)
  return guard
}

const pathOf = (resource: string): string => `${folder}/values/${resource}`

guardSuite('a file', () => ({
  guard: guardOf,
  read: async (resource) => (existsSync(pathOf(resource)) ? Number(readFileSync(pathOf(resource), 'utf8')) : 0),
  async write(guard, lease, value) {
    for (const resource of lease.resources) await guard.replace(lease, pathOf(resource), String(value))
  },
}))

describe('replace', () => {
  test('keeps the mode of the file, follows a link, and leaves nothing beside it', async () => {
    const guard = guardOf()
    const resource = freshResource()
    const place = `${folder}/${resource}`
    mkdirSync(place)
    writeFileSync(`${place}/real`, 'before')
    chmodSync(`${place}/real`, 0o640)
    symlinkSync('real', `${place}/link`)
    await guard.replace(leaseOf(resource, 2n), `${place}/link`, 'after')
    await guard.replace(leaseOf(resource, 2n), `${place}/new`, Buffer.from('bytes'))
    await expect(guard.replace(leaseOf(resource, 1n), `${place}/real`, 'late')).rejects.toMatchObject({ seen: 2n })
    expect(readFileSync(`${place}/real`, 'utf8')).toBe('after')
    expect(statSync(`${place}/real`).mode & 0o777).toBe(0o640)
    expect(readFileSync(`${place}/new`, 'utf8')).toBe('bytes')
    expect(readdirSync(place).sort()).toEqual(['link', 'new', 'real'])
  })

  test('of a path that can not be is the error of the file system, and leaves nothing behind', async () => {
    const guard = guardOf()
    const resource = freshResource()
    const place = `${folder}/${resource}`
    mkdirSync(`${place}/folder`, { recursive: true })
    await expect(guard.replace(leaseOf(resource, 1n), `${place}/none/file`, 'x')).rejects.toMatchObject({
      code: 'ENOENT',
    })
    await expect(guard.replace(leaseOf(resource, 1n), `${place}/folder`, 'x')).rejects.toMatchObject({ code: 'EISDIR' })
    expect(readdirSync(place)).toEqual(['folder'])
  })

  test('a newer holder that enters while the data is being written keeps it from its place', async () => {
    const resource = freshResource()
    const guard = guardOf()
    await guard.replace(leaseOf(resource, 1n), pathOf(resource), 'first')
    const late = guard.replace(leaseOf(resource, 1n), pathOf(resource), 'x'.repeat(20_000_000))
    await guardOf().enter(leaseOf(resource, 2n))
    await expect(late).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: 2n })
    expect(readFileSync(pathOf(resource), 'utf8')).toBe('first')
  })

  test('a newer holder that enters between the raise and the renaming keeps it from its place too', async () => {
    const resource = freshResource()
    await guardOf().enter(leaseOf(freshResource(), 1n))
    const other = (await openDatabase(`${folder}/fences.db`, { create: false, random: systemRandom }))!
    const enter = other.statement("UPDATE fence SET token = '2' WHERE resource = ? AND token = '1'")
    // In this process nothing gets a turn between the two steps, except that each of them looks at the clock first.
    const clock = {
      ...systemClock,
      monotonicMs() {
        enter.run(resource)
        return systemClock.monotonicMs()
      },
    }
    const late = guardOf({ clock }).replace(leaseOf(resource, 1n), pathOf(resource), 'late')
    await expect(late).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: 2n })
    expect(existsSync(pathOf(resource))).toBe(false)
    other.close()
  })

  test('the fence is there for good before the new file is', async () => {
    const resource = freshResource()
    const guard = guardOf()
    const place = `${folder}/${resource}`
    mkdirSync(place)
    // The renaming fails, as if we had died right before it.
    mkdirSync(`${place}/target`)
    await expect(guard.replace(leaseOf(resource, 5n), `${place}/target`, 'x')).rejects.toMatchObject({ code: 'EISDIR' })
    await expect(guard.enter(leaseOf(resource, 4n))).rejects.toMatchObject({ seen: 5n })
  })
})

describe('the database', () => {
  test('may be the one that the leases are in', async () => {
    const path = `${folder}/locks.db`
    const locks = createLocks(file(path), { ttl: '10s' })
    const guard = fileGuard(path)
    opened.push(guard)
    const first = await locks.acquire('report')
    await guard.replace(first, `${folder}/report`, 'of the first')
    await first.release()
    const second = await locks.acquire('report')
    await guard.enter(second)
    await expect(guard.replace(first, `${folder}/report`, 'late')).rejects.toMatchObject({ code: 'STALE_TOKEN' })
    expect(readFileSync(`${folder}/report`, 'utf8')).toBe('of the first')
    await locks.close()
  })

  test('that another process has locked is waited for, up to a time', async () => {
    const guard = guardOf({ requestTimeout: 100 })
    const resource = freshResource()
    await guard.enter(leaseOf(resource, 1n))
    const other = (await openDatabase(`${folder}/fences.db`, { create: false, random: systemRandom }))!
    other.statement('BEGIN IMMEDIATE').run()
    await expect(guard.enter(leaseOf(resource, 2n))).rejects.toMatchObject({
      code: 'GUARD',
      transient: true,
      message: expect.stringContaining('no answer within 100 ms'),
    })
    const entering = guardOf().enter(leaseOf(resource, 2n))
    other.statement('COMMIT').run()
    await entering
    other.close()
  })

  test('that was removed is told once, not passed over', async () => {
    const path = `${folder}/removed.db`
    const guard = fileGuard(path)
    opened.push(guard)
    await guard.enter(leaseOf('a', 2n))
    for (const suffix of ['', '-wal', '-shm']) rmSync(path + suffix, { force: true })
    await expect(guard.enter(leaseOf('a', 1n))).rejects.toThrow('was removed or replaced, and with it the fences')
    await guard.enter(leaseOf('a', 1n))
  })

  test('that can not be one is an error in words', async () => {
    writeFileSync(`${folder}/text.db`, 'no database at all, but long enough to be taken for one'.repeat(50))
    const guard = fileGuard(`${folder}/text.db`)
    await expect(guard.enter(leaseOf('a', 1n))).rejects.toMatchObject({ code: 'ENGINE', transient: false })
    await guard.close()
  })
})

test('arguments that can not be are refused by name', async () => {
  expect(() => fileGuard('')).toThrow('database: expected the path of a file')
  expect(() => fileGuard(7 as never)).toThrow('database: expected the path of a file, got 7')
  const guard = guardOf()
  await expect(guard.replace(leaseOf('a', 1n), '', 'x')).rejects.toThrow('path: expected a path')
  await expect(guard.replace(leaseOf('a', 1n), 'x', 7 as never)).rejects.toThrow(
    'data: expected a string or bytes, got 7',
  )
})
