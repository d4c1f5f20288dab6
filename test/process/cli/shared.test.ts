import { afterAll, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { file } from '../../../src/engines/file/index.ts'
import { createLocks, type Lease } from '../../../src/index.ts'
import { Home } from '../../../harness/command.ts'

const home = new Home()
const path = home.file('shared.db')
const env = { RINGFENCE_URL: `file:${path}` }
afterAll(() => home[Symbol.asyncDispose]())

/** One reader each, whose owners begin with nothing that is alike. */
async function readers(resource: string, ...labels: string[]): Promise<AsyncDisposable & { leases: Lease[] }> {
  const all = labels.map((label) => createLocks(file(path), { label }))
  const leases = await Promise.all(all.map((locks) => locks.acquire(resource, { shared: true })))
  const close = async (): Promise<void> => void (await Promise.all(all.map((locks) => locks.close())))
  return { leases, [Symbol.asyncDispose]: close }
}

test('status shows each reader, to people and to machines', async () => {
  await using shared = await readers('report', 'alice', 'bob')
  const { stdout } = await home.run(['status', 'report'], { env })
  const lines = stdout.trim().split('\n')
  expect(lines[0]).toMatch(/^RESOURCE +HOLDER +TOKEN/)
  expect(lines.slice(1).toSorted()).toEqual([
    expect.stringMatching(/^report +alice \(shared\) +\d+ /),
    expect.stringMatching(/^report +bob \(shared\) +\d+ /),
  ])
  const machines = await home.run(['status', '--json'], { env })
  const { leases } = JSON.parse(machines.stdout) as { leases: { owner: string; shared: boolean }[] }
  expect(new Map(leases.map(({ owner, shared }) => [owner, shared]))).toEqual(
    new Map(shared.leases.map(({ owner }) => [owner, true])),
  )
})

test('run says that it waits for one who shares it', async () => {
  await using _shared = await readers('report', 'alice')
  const { code, stderr } = await home.run(['run', '--no-wait', 'report', '--', 'true'], { env })
  expect({ code, stderr }).toEqual({
    code: EXIT.held,
    stderr: expect.stringMatching(/^ringfence: 'report' is shared by alice \(/) as string,
  })
})

test('release lists several readers, and ends the one that is named, or all', async () => {
  await using shared = await readers('report', 'alice', 'bob', 'carol')
  const [alice, bob, carol] = shared.leases as [Lease, Lease, Lease]
  const asked = await home.run(['release', '--force', '--yes', 'report'], { env })
  expect(asked.code).toBe(EXIT.usage)
  expect(asked.stderr).toMatch(/^ringfence: 'report' is shared by 3: (alice|bob|carol), /)
  expect(asked.stderr).toMatch(/\n {2}next: ringfence release --force --holder '(alice|bob|carol)' report ends one/)

  const release = ['release', '--force', '--yes', 'report']
  expect(await home.run([...release, '--holder', 'mallory'], { env })).toMatchObject({
    code: EXIT.no,
    stderr: expect.stringMatching(
      /^ringfence: no holder of 'report' is called 'mallory': 'report' is shared by /,
    ) as string,
  })
  expect(await home.run([...release, '--holder', 'bob', '--all'], { env })).toMatchObject({ code: EXIT.usage })
  const one = await home.run([...release, '--holder', 'bob', '--json'], { env })
  expect({ code: one.code, ...(JSON.parse(one.stdout) as object) }).toEqual({
    code: 0,
    resource: 'report',
    released: true,
    owner: bob.owner,
    token: String(bob.token),
  })
  await expect(bob.extend()).rejects.toMatchObject({ code: 'LEASE_LOST' })
  await Promise.all([alice.extend(), carol.extend()])

  const all = await home.run([...release, '--all'], { env })
  expect(all.code).toBe(0)
  expect(all.stderr.trim().split('\n').toSorted()).toEqual([
    `ringfence: released 'report' of alice, token ${alice.token}`,
    `ringfence: released 'report' of carol, token ${carol.token}`,
  ])
  expect(await home.run(['status', 'report'], { env })).toMatchObject({ code: EXIT.no })
})

test('release of readers with one label asks for an owner, and takes one', async () => {
  await using shared = await readers('report', 'twin', 'twin')
  const [first, second] = shared.leases as [Lease, Lease]
  const asked = await home.run(['release', '--force', '--yes', '--holder', 'twin', 'report'], { env })
  expect(asked.stderr).toContain(first.owner)
  expect(asked.stderr).toContain(second.owner)
  const one = await home.run(['release', '--force', '--yes', '--holder', second.owner, 'report'], { env })
  expect(one.code).toBe(0)
  await first.extend()
  await expect(second.extend()).rejects.toMatchObject({ code: 'LEASE_LOST' })
  // One that is left needs no name.
  expect(await home.run(['release', '--force', '--yes', 'report'], { env })).toMatchObject({ code: 0 })
})

test('status of a pool says that permits of it are held, and how to see them', async () => {
  await using locks = createLocks(file(path))
  await locks.semaphore('gpu', 4).acquire()
  const { code, stdout } = await home.run(['status', 'gpu'], { env })
  expect({ code, stdout }).toEqual({
    code: EXIT.no,
    stdout:
      "nobody holds 'gpu' itself, but 1 permit of it is held: ringfence status gpu --permits N, with the number of its permits\n",
  })
})
