import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Finding } from '../../../src/engine.ts'
import { fileSystem, space } from '../../../src/engines/file/doctor.ts'
import { file } from '../../../src/engines/file/index.ts'
import { loadSqlite } from '../../../src/engines/file/client.ts'
import { hasNamespaces, Place, unsharedAfter } from './setup.ts'

async function findings(path: string, ttlMs = 30_000): Promise<Map<string, Finding>> {
  const engine = file(path)
  const found = await engine.check(ttlMs)
  await engine.close()
  return new Map(found.map((finding) => [finding.id, finding]))
}

describe('the doctor', () => {
  test('is content with a file of ours on a local disk', async () => {
    await using place = new Place()
    chmodSync(place.folder, 0o700)
    const found = await findings(place.path)
    const wrong = [...found.values()].filter(({ id, severity }) => severity !== 'ok' && id !== 'file/file-system')
    expect(wrong).toEqual([])
    expect(found.size).toBe(9)
  })

  test('finds a damaged table', async () => {
    await using place = new Place()
    await findings(place.path)
    const { connect } = await loadSqlite()
    const connection = connect(place.path)
    for (let i = 0; i < 200; i++) {
      connection.exec(`INSERT INTO lease VALUES ('${i}${'x'.repeat(300)}', '', 0, 1, '', 0, 0, 0, NULL)`)
    }
    connection.exec('PRAGMA wal_checkpoint(TRUNCATE)')
    connection.close()
    const bytes = readFileSync(place.path)
    // One of the last pages, which the first look at the file does not need.
    bytes.fill(0xa5, bytes.length - 3 * 4096, bytes.length - 2 * 4096)
    writeFileSync(place.path, bytes)
    const found = await findings(place.path)
    expect(found.get('file/integrity')).toMatchObject({
      severity: 'critical',
      remedy: expect.stringContaining(`move ${place.path}`),
    })
  })

  test('finds that others can write to the file, or put another one in its place', async () => {
    await using place = new Place()
    const folder = join(place.folder, 'shared')
    mkdirSync(folder, { mode: 0o700 })
    const path = join(folder, 'locks.db')
    expect((await findings(path)).get('file/permissions')).toMatchObject({ severity: 'ok' })
    chmodSync(path, 0o660)
    expect((await findings(path)).get('file/permissions')).toMatchObject({
      severity: 'warning',
      remedy: `Run \`chmod go-w ${path}\`.`,
    })
    chmodSync(path, 0o600)
    chmodSync(folder, 0o777)
    expect((await findings(path)).get('file/permissions')).toMatchObject({
      severity: 'warning',
      remedy: `Run \`chmod go-w ${folder}\`.`,
    })
    chmodSync(folder, 0o1777)
    expect((await findings(path)).get('file/permissions')).toMatchObject({ severity: 'ok' })
  })

  test('finds that the disk is too slow for the ttl', async () => {
    await using place = new Place()
    expect((await findings(place.path, 0.001)).get('file/speed')).toMatchObject({ severity: 'warning' })
  })

  test.skipIf(!hasNamespaces)('finds that the file is in the layers of a container', async () => {
    await using place = new Place()
    for (const name of ['upper', 'work', 'merged']) mkdirSync(join(place.folder, name))
    const { folder } = place
    // The upper layer must not be an overlay itself, which the folder for temporary files may be.
    const mount = `mount -t tmpfs tmpfs ${folder} && mkdir ${folder}/lower ${folder}/upper ${folder}/work ${folder}/merged \
      && mount -t overlay overlay -o lowerdir=${folder}/lower,upperdir=${folder}/upper,workdir=${folder}/work ${folder}/merged`
    const puppet = await place.puppet({
      under: unsharedAfter(mount, '--mount'),
      env: { RINGFENCE_FILE: join(folder, 'merged', 'locks.db') },
    })
    const { findings } = await puppet.call('check')
    expect(findings).toContainEqual(expect.objectContaining({ id: 'file/file-system', severity: 'warning' }))
  })

  test('says which file systems are not of one machine', () => {
    // These can't be mounted by a test. The numbers are those of statfs(2), which are signed on some machines.
    expect(fileSystem(0x6969)).toMatchObject({ severity: 'critical', found: 'The file is on NFS.' })
    expect(fileSystem(0xff534d42 | 0)).toMatchObject({ severity: 'critical', found: 'The file is on CIFS.' })
    expect(fileSystem(0x65735546)).toMatchObject({ severity: 'critical', found: 'The file is on FUSE.' })
    expect(fileSystem(0xef53)).toMatchObject({ severity: 'ok' })
    expect(space(33 * 1024 * 1024)).toMatchObject({ severity: 'ok' })
  })
})
