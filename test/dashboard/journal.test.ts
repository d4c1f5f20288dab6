import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { chownSync } from 'node:fs'
import path from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { dashboard, type Dashboard } from '../../src/dashboard/index.ts'
import type { History, Past } from '../../src/dashboard/protocol.ts'
import { Journal, type JournalEntry } from '../../src/dashboard/server/journal.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks } from '../../src/index.ts'
import { ManualClock } from '../../harness/manual-clock.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'
import { ask } from './viewer.ts'

const folder = createFolder('history')
afterAll(() => removeFolder(folder))
let files = 0
const newFile = (): string => path.join(folder, `history-${files++}`)

const ENTRY: JournalEntry = {
  at: 0,
  engine: 'memory',
  resource: 'order:1',
  type: 'granted',
  owner: `${'1'.repeat(32)}@ada`,
  token: '7',
  exact: true,
}

function journal(file: string, settings: { maxBytes?: number; maxAgeMs?: number; clock?: ManualClock } = {}): Journal {
  const { maxBytes = 1_000_000, maxAgeMs = 86_400_000, clock = new ManualClock() } = settings
  return new Journal({ file, maxBytes, maxAgeMs }, clock)
}

const tokens = (one: Journal): string[] => one.read().map(({ token }) => token)

describe('the file of the history', () => {
  test('keeps what was added, for this user alone, and the next process reads it', async () => {
    const file = newFile()
    const clock = new ManualClock()
    const first = journal(file, { clock })
    for (const token of ['1', '2', '3']) first.add({ ...ENTRY, at: clock.wallMs(), token })
    await first.close()
    expect(statSync(file).mode & 0o777).toBe(0o600)
    const second = journal(file, { clock })
    expect(second.read()).toEqual(['1', '2', '3'].map((token) => ({ ...ENTRY, at: clock.wallMs(), token })))
    await second.close()
  })

  test('a line that was torn by a crash costs that line and no other, also what is not ours', async () => {
    const file = newFile()
    const clock = new ManualClock()
    const line = (token: string): string => JSON.stringify({ ...ENTRY, at: clock.wallMs(), token })
    const odd = ['', 'null', '[]', '{}', '"x"', '{"at":1}', line('x'), line('9').replace('granted', 'toString')]
    writeFileSync(file, [...odd, line('1'), line('2').slice(0, 40)].join('\n'), { mode: 0o600 })
    const one = journal(file, { clock })
    one.add({ ...ENTRY, at: clock.wallMs(), token: '3' })
    await one.close()
    const again = journal(file, { clock })
    expect(tokens(again)).toEqual(['1', '3'])
    await again.close()
  })

  test('is bounded in size: it becomes FILE.1, and the one before is gone', async () => {
    const file = newFile()
    const clock = new ManualClock()
    const one = journal(file, { clock, maxBytes: 20_000 })
    for (let token = 0; token < 1000; token++) {
      one.add({ ...ENTRY, at: clock.wallMs(), token: String(token) })
      if (token % 10 === 0) await one.readInTurns()
    }
    await one.close()
    expect(statSync(file).size + statSync(`${file}.1`).size).toBeLessThan(24_000)
    const again = journal(file, { clock, maxBytes: 20_000 })
    const kept = tokens(again)
    expect(kept.length).toBeGreaterThan(40)
    expect(kept.at(-1)).toBe('999')
    expect(kept).toEqual(Array.from({ length: kept.length }, (_, index) => String(1000 - kept.length + index)))
    await again.close()
  })

  test('is bounded in age: what is older is not read, and leaves the disk', async () => {
    const file = newFile()
    const clock = new ManualClock()
    const one = journal(file, { clock, maxAgeMs: 3_600_000 })
    one.add({ ...ENTRY, at: clock.wallMs(), token: '1' })
    await one.readInTurns()
    await clock.advance(3_700_000)
    expect(tokens(one)).toEqual([])
    await clock.advance(3_600_000)
    // Moved away by then, and removed when that file is old itself.
    await until(() => existsSync(`${file}.1`), { what: 'it is moved away' })
    utimesSync(`${file}.1`, 1, 1)
    await clock.advance(3_600_000)
    await until(() => !existsSync(`${file}.1`), { what: 'it is removed' })
    await one.close()
  })

  test('two dashboards on one file lose nothing, also when one of them moves it away', async () => {
    const file = newFile()
    const clock = new ManualClock()
    const [one, two] = [journal(file, { clock, maxBytes: 200_000 }), journal(file, { clock, maxBytes: 200_000 })]
    for (let token = 0; token < 800; token++) {
      const writer = token % 2 === 0 ? one : two
      writer.add({ ...ENTRY, at: clock.wallMs(), token: String(token) })
      if (token % 7 === 0) await Promise.all([one.readInTurns(), two.readInTurns()])
    }
    await Promise.all([one.close(), two.close()])
    expect(existsSync(`${file}.1`)).toBe(true)
    const again = journal(file, { clock, maxBytes: 200_000 })
    expect(new Set(tokens(again)).size).toBe(800)
    await again.close()
  })

  test('a file that was removed or moved away meanwhile is made again', async () => {
    const file = newFile()
    const clock = new ManualClock()
    const one = journal(file, { clock })
    one.add({ ...ENTRY, at: clock.wallMs(), token: '1' })
    await one.readInTurns()
    removeFolder(file)
    one.add({ ...ENTRY, at: clock.wallMs(), token: '2' })
    await one.readInTurns()
    expect(readFileSync(file, 'utf8')).toContain('"token":"2"')
    await one.close()
  })

  test('while it cannot be written, entries wait, are found, and are written later', async () => {
    const inner = path.join(folder, `gone-${files++}`)
    mkdirSync(inner)
    const file = path.join(inner, 'history')
    const clock = new ManualClock()
    const one = journal(file, { clock })
    removeFolder(inner)
    one.add({ ...ENTRY, at: clock.wallMs(), token: '1' })
    expect((await one.readInTurns()).map(({ token }) => token)).toEqual(['1'])
    expect(one.trouble).toMatch(/cannot be opened: ENOENT/)
    expect(one.losses).toEqual({ failures: 1, dropped: 0 })
    mkdirSync(inner)
    await clock.advance(10_000)
    await until(() => one.trouble === null, { what: 'it is written' })
    expect(readFileSync(file, 'utf8')).toContain('"token":"1"')
    await one.close()
  })

  test('a file that is not ours alone is refused, and is not changed', async () => {
    const writable = newFile()
    writeFileSync(writable, 'theirs')
    chmodSync(writable, 0o666)
    const link = newFile()
    symlinkSync(writable, link)
    expect(() => journal(writable)).toThrow(
      /^history: expected a file of this user alone, but .* can be written to by others/,
    )
    expect(() => journal(link)).toThrow(/^history: .* cannot be opened: ELOOP/)
    expect(() => journal(folder)).toThrow(/^history: .* cannot be opened: EISDIR/)
    expect(() => journal('/dev/null')).toThrow(/is no regular file/)
    expect(readFileSync(writable, 'utf8')).toBe('theirs')
  })

  test.runIf(process.geteuid?.() === 0)(
    'a file of another user is refused, and so is one in the place of FILE.1',
    async () => {
      const file = newFile()
      const clock = new ManualClock()
      writeFileSync(file, '', { mode: 0o600 })
      chownSync(file, 65_534, 65_534)
      expect(() => journal(file, { clock })).toThrow(/belongs to the user with the id 65534, and this process is 0/)
      chownSync(file, 0, 0)
      appendFileSync(`${file}.1`, `${JSON.stringify({ ...ENTRY, at: clock.wallMs() })}\n`)
      const one = journal(file, { clock })
      expect(tokens(one)).toEqual(['7'])
      chownSync(`${file}.1`, 65_534, 65_534)
      expect(tokens(one)).toEqual([])
      await one.close()
    },
  )
})

async function past(page: Dashboard, words: string): Promise<Past> {
  return (await (await ask(page, `/past?words=${encodeURIComponent(words)}`)).json()) as Past
}

describe('a dashboard with a file', () => {
  test('knows the history of the one before it, and finds it by words', async () => {
    const file = newFile()
    const engine = memory()
    const options = { auth: () => 'read' as const, history: file, every: 100 }
    const before = dashboard(engine, options)
    const locks = createLocks(engine, { label: 'Ada', observe: before.observe })
    const held = await locks.acquire('order:1')
    await (await locks.acquire('mail:1')).release()
    await before.close()

    await using page = dashboard(engine, options)
    const answer = await ask(page, '/history?resource=order%3A1')
    const { entries, lives } = (await answer.json()) as History
    expect(entries).toMatchObject([{ type: 'granted', token: String(held.token), exact: true }])
    expect(lives).toMatchObject([{ began: 'granted', beganExact: true, label: 'Ada' }])
    const found = await past(page, 'ADA mail')
    expect(found).toMatchObject({ more: false, kept: 'in a file', trouble: null })
    expect(found.entries.map(({ type, resource }) => `${type} ${resource}`)).toEqual([
      'released mail:1',
      'granted mail:1',
    ])
    expect((await past(page, 'nobody')).entries).toEqual([])
    expect((await past(page, '')).entries).toHaveLength(3)
  })

  test('without a file the same is found in memory', async () => {
    const engine = memory()
    await using page = dashboard(engine, { auth: () => 'read' })
    const locks = createLocks(engine, { label: 'ada', observe: page.observe })
    await (await locks.acquire('mail:1')).release()
    const found = await past(page, 'mail')
    expect(found).toMatchObject({
      kept: 'in memory',
      entries: [{ type: 'released' }, { type: 'granted', label: 'ada' }],
    })
  })

  test('two engines do not see each other’s', async () => {
    const [one, two] = [memory(), memory()]
    await using page = dashboard({ one, two }, { auth: () => 'read', history: newFile() })
    await createLocks(two, { observe: page.observerOf('two') }).acquire('mail:1')
    expect((await past(page, '')).entries).toEqual([])
    const other = (await (await ask(page, '/past?engine=two')).json()) as Past
    expect(other.entries).toMatchObject([{ resource: 'mail:1' }])
  })

  test.each([
    [3, /^history: expected the path of a file/],
    ['', /^history: expected the path of a file, got ''/],
    [{ file: 'x', maxBytes: 5 }, /^history\.maxBytes: expected a whole number from 65536 to 1073741824, got 5$/],
    [{ file: 'x', maxAge: '1s' }, /^history\.maxAge: /],
    [{ file: 'x', size: 5 }, /size/],
  ])('history: %j is refused', (history, message) => {
    expect(() => dashboard(memory(), { history: history as never })).toThrow(message)
  })
})
