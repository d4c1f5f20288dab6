import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { renameSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Engine, LeaseRef } from '../../../src/engine.ts'
import { file } from '../../../src/engines/file/index.ts'
import { loadSqlite } from '../../../src/engines/file/client.ts'
import { createLocks } from '../../../src/locks.ts'
import { EngineError } from '../../../src/errors.ts'
import { AS_NOBODY, hasNamespaces, leases, Place, unsharedAfter } from './setup.ts'

let owners = 0

/** One attempt by a new owner. */
async function lease(engine: Engine, resource: string, ttlMs = 30_000): Promise<LeaseRef> {
  const request = { resources: [resource], owner: `owner ${++owners}`, ttlMs }
  const outcome = await engine.acquire(request)
  if (outcome.kind === 'refused') throw new Error(`refused: ${JSON.stringify(outcome)}`)
  return { ...request, token: outcome.token }
}

async function failure(engine: Engine): Promise<EngineError> {
  const error: unknown = await lease(engine, 'x').catch((reason: unknown) => reason)
  await engine.close()
  if (!(error instanceof EngineError)) throw new Error('expected an EngineError', { cause: error })
  return error
}

async function sql(path: string, text: string): Promise<void> {
  const { connect } = await loadSqlite()
  const connection = connect(path)
  connection.exec(text)
  connection.close()
}

/** A file as it is after some use, without the engine. */
async function used(path: string): Promise<void> {
  const engine = file(path)
  for (let i = 0; i < 100; i++) await lease(engine, `resource ${i} ${'x'.repeat(500)}`)
  await engine.close()
  await sql(path, 'PRAGMA wal_checkpoint(TRUNCATE)')
}

/** Of what was there; SQLite may put its two files beside it. */
function contents(folder: string): Record<string, string> {
  const names = readdirSync(folder).filter((name) => !/-(wal|shm)$/.test(name))
  return Object.fromEntries(
    names.map((name) => {
      const path = join(folder, name)
      return [name, statSync(path).isFile() ? readFileSync(path, 'base64') : 'folder']
    }),
  )
}

describe('a file that can not be used is named, with what to do, and stays as it is', () => {
  const cases: [what: string, make: (path: string) => void | Promise<void>, message: RegExp][] = [
    ['a text', (path) => writeFileSync(path, 'To do:\n'.repeat(200)), /is not a database, or is damaged.*move it/],
    ['an empty file', (path) => writeFileSync(path, ''), /is empty; if no process uses it, remove it$/],
    ['a folder', (path) => mkdirSync(path), /is not a file; pass the path of a file$/],
    [
      'a database of another program',
      (path) => sql(path, 'CREATE TABLE customer (name TEXT)'),
      /database of another program; choose another path$/,
    ],
    [
      'a file of a newer ringfence',
      async (path) => {
        await used(path)
        await sql(path, 'PRAGMA user_version = 3')
      },
      /has version 3 of the tables, and this ringfence knows version 2; use the same version/,
    ],
    [
      'a truncated file',
      async (path) => {
        await used(path)
        truncateSync(path, 8192)
      },
      /is not a database, or is damaged.*move it and its -wal and -shm away/,
    ],
    [
      'a file with a page of rubbish',
      async (path) => {
        await used(path)
        const bytes = readFileSync(path)
        bytes.fill(0xa5, 4096, 4 * 4096)
        writeFileSync(path, bytes)
      },
      /is not a database, or is damaged/,
    ],
    [
      'a log without its file',
      async (path) => {
        writeFileSync(`${path}-wal`, 'left behind')
      },
      /is missing, but .*-wal exists; put it back/,
    ],
    ['a path below a file', (path) => writeFileSync(join(path, '..', 'folder'), ''), /cannot be the path of a file/],
  ]

  test.each(cases)('%s', async (what, make, message) => {
    await using place = new Place()
    await make(place.path)
    const path = what === 'a path below a file' ? join(place.folder, 'folder', 'locks.db') : place.path
    const before = contents(place.folder)
    const error = await failure(file(path))
    expect(error.message).toMatch(message)
    expect(error.message).toContain(path)
    expect(error.transient).toBe(false)
    expect(contents(place.folder)).toEqual(before)
    const engine = file(path)
    expect((await engine.check(1000)).filter(({ severity }) => severity === 'critical')).toHaveLength(1)
    await engine.close()
  })
})

describe('where nothing may be written', () => {
  // In a process of its own: what never ends would stop this one.
  test('a folder that the system refuses to make although the one above it is there is an error, and no endless loop', async () => {
    await using place = new Place()
    const puppet = await place.puppet({ env: { RINGFENCE_FILE: '/proc/no-such-folder/below/locks.db' } })
    const answer = await puppet.call('tryAcquire', { resource: 'x' })
    expect(answer).toMatchObject({ type: 'failed', code: 'ENGINE' })
    expect(answer['message']).toMatch(/no-such-folder/)
  })

  test('a new file is not made, and the error says where and why', async () => {
    await using place = new Place()
    chmodSync(place.folder, 0o555)
    const puppet = await place.puppet({ under: AS_NOBODY })
    const answer = await puppet.call('tryAcquire', { resource: 'x' })
    expect(answer).toMatchObject({ type: 'failed', code: 'ENGINE', transient: false })
    expect(answer['message']).toMatch(
      /locks\.db cannot be opened for writing: .*permission denied.*choose another path/,
    )
    chmodSync(place.folder, 0o755)
    expect(readdirSync(place.folder)).toEqual([])
  })

  test('a file of someone else is not used, though it could be read', async () => {
    await using place = new Place()
    await used(place.path)
    chmodSync(place.path, 0o444)
    chmodSync(place.folder, 0o555)
    const puppet = await place.puppet({ under: AS_NOBODY })
    const answer = await puppet.call('tryAcquire', { resource: 'x' })
    expect(answer).toMatchObject({ type: 'failed', code: 'ENGINE', transient: false })
    expect(answer['message']).toMatch(/cannot be opened for writing: EACCES: permission denied, access '.*locks\.db'/)
    chmodSync(place.folder, 0o755)
  })

  test.skipIf(!hasNamespaces)('on a file system that is mounted read-only, the error says so', async () => {
    await using place = new Place()
    await used(place.path)
    const mount = `mount --bind ${place.folder} ${place.folder} && mount -o remount,bind,ro ${place.folder}`
    const puppet = await place.puppet({ under: unsharedAfter(mount, '--mount') })
    const answer = await puppet.call('tryAcquire', { resource: 'x' })
    expect(answer).toMatchObject({ type: 'failed', transient: false })
    expect(answer['message']).toMatch(/cannot be opened for writing: EROFS: read-only file system/)
  })
})

const disk = (size: string): string[] =>
  unsharedAfter(`mount -t tmpfs -o size=${size} tmpfs "$(dirname "$RINGFENCE_FILE")"`, '--mount')

describe.skipIf(!hasNamespaces)('on a full disk', () => {
  test('nothing is granted, a lease is in doubt; when there is room again, all goes on', async () => {
    await using place = new Place()
    const puppet = await place.puppet({ under: disk('512k') })
    const x = { resource: 'x' }
    const { token } = await puppet.call('acquire', x)
    const rubbish = { path: join(place.folder, 'rubbish') }
    expect(await puppet.call('fill', rubbish)).toMatchObject({ freeBlocks: 0 })
    const refusals = []
    // The log has some room of its own at first.
    for (let i = 0; i < 50; i++) refusals.push(await puppet.call('tryAcquire', { resource: `y${i}` }))
    expect(refusals.at(-1)).toMatchObject({ type: 'failed', code: 'ENGINE', transient: true })
    expect(refusals.at(-1)!['message']).toMatch(/locks\.db cannot be written: the disk is full/)
    expect(await puppet.call('extend', x)).toMatchObject({
      type: 'failed',
      code: 'ENGINE',
      message: expect.stringContaining('the disk is full'),
    })
    expect(await puppet.call('state', x)).toMatchObject({ held: true })
    await puppet.call('remove', rubbish)
    expect(await puppet.call('extend', x)).toMatchObject({ type: 'done' })
    const next = await puppet.call('acquire', { resource: 'z' })
    expect(Number(next['token'])).toBeGreaterThan(Number(token))
    const { findings } = await puppet.call('check')
    expect(findings).toContainEqual(expect.objectContaining({ id: 'file/integrity', severity: 'ok' }))
    expect(findings).toContainEqual(expect.objectContaining({ id: 'file/space', severity: 'warning' }))
    expect(findings).toContainEqual(expect.objectContaining({ id: 'file/file-system', severity: 'note' }))
  })

  test('a new file is not left half made', async () => {
    await using place = new Place()
    const puppet = await place.puppet({ under: disk('8k') })
    const refusal = await puppet.call('tryAcquire', { resource: 'x' })
    expect(refusal).toMatchObject({ type: 'failed', transient: true })
    expect(refusal['message']).toMatch(/the disk is full/)
    // All of its room is there again.
    expect(await puppet.call('fill', { path: join(place.folder, 'rubbish') })).toMatchObject({ freeBlocks: 0 })
    expect(await puppet.call('sizes', { folder: place.folder })).toMatchObject({ sizes: { rubbish: 8192 } })
  })
})

function removeAll(path: string): void {
  for (const suffix of ['', '-wal', '-shm']) rmSync(path + suffix, { force: true })
}

describe('a file that is removed or replaced while in use', () => {
  test('holds nobody up for longer than the leases in it, and grants nothing meanwhile', async () => {
    await using place = new Place()
    const [holder, other] = [file(place.path), file(place.path)]
    const held = await lease(holder, 'x')
    await lease(other, 'y', 1).catch(() => undefined)
    removeAll(place.path)
    await expect(lease(other, 'x')).rejects.toThrow(/locks\.db was removed while in use; put it back, or wait/)
    await expect(lease(other, 'z')).rejects.toMatchObject({ code: 'ENGINE', transient: true })
    expect(await holder.extend([held])).toMatchObject([{ kind: 'unknown' }])
    expect(existsSync(place.path)).toBe(false)
    expect(await holder.release(held)).toMatchObject({ ours: true })
    // Nothing is held in it any more: a new file is made, and tokens go on.
    const next = await lease(other, 'x')
    expect(next.token).toBeGreaterThan(held.token)
    expect(await leases(file(place.path))).toMatchObject([{ resource: 'x', owner: next.owner }])
    await holder.close()
    await other.close()
  })

  test('is lost: a holder whose file was replaced is told at its next renewal', async () => {
    await using place = new Place()
    const [holder, newcomer] = [file(place.path), file(place.path)]
    const held = await lease(holder, 'x')
    removeAll(place.path)
    const second = await lease(newcomer, 'x')
    expect(second.token).toBeGreaterThan(held.token)
    expect(await holder.extend([held])).toEqual([{ kind: 'lost' }])
    await expect(lease(holder, 'y')).rejects.toThrow(/was replaced by another file while in use/)
    await holder.close()
    await newcomer.close()
  })

  test('is used again when it is put back', async () => {
    await using place = new Place()
    const engine = file(place.path)
    const held = await lease(engine, 'x')
    renameSync(place.folder, `${place.folder}-away`)
    expect(await engine.extend([held])).toMatchObject([{ kind: 'unknown', cause: { code: 'ENGINE' } }])
    renameSync(`${place.folder}-away`, place.folder)
    expect(await engine.extend([held])).toEqual([{ kind: 'held' }])
    await engine.close()
  })

  test('lets those who wait go on in the new one', async () => {
    await using place = new Place()
    const holder = file(place.path)
    const held = await lease(holder, 'x')
    await using locks = createLocks(file(place.path))
    const waiting = locks.acquire('x', { wait: '20s' })
    removeAll(place.path)
    await holder.release(held)
    const next = await waiting
    expect(next.token).toBeGreaterThan(held.token)
    expect(await leases(file(place.path))).toMatchObject([{ owner: next.owner }])
    await holder.close()
  })
})

describe('a new file', () => {
  test('and its folder are for this user alone', async () => {
    await using place = new Place()
    const path = join(place.folder, 'a', 'b', 'locks.db')
    const engine = file(path)
    expect(await engine.init!()).toEqual([`Created ${path}, which only this user can read and write.`])
    expect(await engine.init!()).toEqual([`${path} existed already.`])
    await lease(engine, 'x')
    const modes = ['..', '../locks.db', '../locks.db-wal', '../locks.db-shm'].map((name) => {
      return (statSync(join(path, name === '..' ? '..' : name)).mode & 0o777).toString(8)
    })
    expect(modes).toEqual(['700', '600', '600', '600'])
    expect(readdirSync(join(place.folder, 'a', 'b'))).toEqual(['locks.db', 'locks.db-shm', 'locks.db-wal'])
    await engine.close()
  })

  test('is not made by looking, releasing or closing', async () => {
    await using place = new Place()
    const engine = file(place.path)
    const nothing = { resources: ['x'], owner: 'nobody', token: 1n, ttlMs: 1000 }
    expect(await engine.release(nothing)).toEqual({ ours: false, awaited: 0 })
    expect(await engine.extend([nothing])).toEqual([{ kind: 'lost' }])
    expect(await leases(engine)).toEqual([])
    expect(readdirSync(place.folder)).toEqual([])
  })

  test('at the end of a link is the file that the link leads to', async () => {
    await using place = new Place()
    await used(place.path)
    const link = join(place.folder, 'link.db')
    symlinkSync(place.path, link)
    const [one, two] = [file(link), file(place.path)]
    await lease(one, 'x')
    await expect(lease(two, 'x')).rejects.toThrow('refused')
    await one.close()
    await two.close()
    expect(readdirSync(place.folder).filter((name) => name.startsWith('link'))).toEqual(['link.db'])
  })

  test('is not made at the end of a link that leads to no file: that is refused for good, and names the file', async () => {
    await using place = new Place()
    const link = join(place.folder, 'link.db')
    symlinkSync('vol/locks.db', link)
    const target = join(place.folder, 'vol/locks.db')
    const refused = expect.objectContaining({
      transient: false,
      message: expect.stringMatching(
        /link\.db is a symbolic link to .*vol\/locks\.db, and no file is there; name that/,
      ) as string,
    }) as unknown
    expect(await failure(file(link))).toEqual(refused)
    mkdirSync(join(place.folder, 'vol'))
    expect(await failure(file(link))).toEqual(refused)
    expect(readdirSync(place.folder).sort()).toEqual(['link.db', 'vol'])
    await used(target)
    const engine = file(link)
    await lease(engine, 'x')
    await engine.close()
  })

  test('with a name of blanks, quotes and percent signs is a file like others', async () => {
    await using place = new Place()
    const path = join(place.folder, "it's 100%41 ?mode=memory#x.db")
    const [one, two] = [file(path), file(path)]
    await lease(one, 'x')
    await expect(lease(two, 'x')).rejects.toThrow('refused')
    expect(existsSync(path)).toBe(true)
    await one.close()
    await two.close()
  })
})

test('a copy of the file from before is recognised by nobody, but tokens go on by the clock', async () => {
  await using place = new Place()
  await used(place.path)
  copyFileSync(place.path, `${place.path}.old`)
  const engine = file(place.path)
  const before = await lease(engine, 'x')
  await engine.close()
  removeAll(place.path)
  renameSync(`${place.path}.old`, place.path)
  const again = file(place.path)
  expect((await lease(again, 'x')).token).toBeGreaterThan(before.token)
  await again.close()
})
