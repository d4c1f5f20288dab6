import { parse as babel } from '@babel/parser'
import { expect, test } from 'vitest'
import { migrateRedlock, type Migration } from '../../../../src/cli/migrate/redlock.ts'
import type { Parse } from '../../../../src/cli/migrate/syntax.ts'

const parse = babel as unknown as Parse
const migrated = (code: string, api: boolean, file = 'a.ts'): Migration => migrateRedlock(code, { file, parse, api })

/** What comes out. A second run must find nothing more to change. */
function rewritten(code: string, { api = false, file = 'a.ts' } = {}): string {
  const first = migrated(code, api, file)
  const second = migrated(first.code, api, file)
  expect(second.code).toBe(first.code)
  expect(second.done).toEqual([])
  return first.code
}

/** After an import and a `new Redlock`, from line 3 on. */
const WITH = (text: string): string => `import Redlock from 'redlock'\nconst redlock = new Redlock([client])\n${text}`

const left = (code: string, api: boolean): string[] =>
  migrated(code, api).left.map(({ line, text }) => `${line}: ${text}`)

test.each([
  ["import Redlock from 'redlock'", "import Redlock from 'ringfence/redlock'"],
  [
    'import Redlock, { ExecutionError } from "redlock";',
    'import Redlock, { ExecutionError } from "ringfence/redlock";',
  ],
  ["import type { Lock, Settings } from 'redlock'", "import type { Lock, Settings } from 'ringfence/redlock'"],
  ["export { default } from 'redlock'", "export { default } from 'ringfence/redlock'"],
  [
    "const { default: Redlock } = await import('redlock')",
    "const { default: Redlock } = await import('ringfence/redlock')",
  ],
  ["const { default: R, Lock } = require('redlock')", "const { default: R, Lock } = require('ringfence/redlock')"],
  ["const Redlock = require('redlock').default", "const Redlock = require('ringfence/redlock').default"],
  [
    "const Redlock = require('redlock')\nnew Redlock([])",
    "const { Redlock } = require('ringfence/redlock')\nnew Redlock([])",
  ],
  ["const R = require('redlock')\nnew R([])", "const { Redlock: R } = require('ringfence/redlock')\nnew R([])"],
  [
    "const Redlock = require('redlock');\nnew Redlock([]);\nerror instanceof Redlock.LockError;",
    "const { Redlock } = require('ringfence/redlock');\nnew Redlock([]);\nerror instanceof Redlock.LockError;",
  ],
])('an import leads to the drop-in: %s', (before, after) => {
  expect(rewritten(before)).toBe(after)
})

test.each([
  ["import { Nothing } from 'redlock'", /^1: ringfence\/redlock has no Nothing$/],
  ["const Redlock = require('redlock')\nuse(Redlock)", /^1: write `const \{ Redlock \} = require/],
  ["import Redlock = require('redlock')", /^1: write `import Redlock from 'ringfence\/redlock'`/],
  ["vi.mock('redlock')", /^1: a mock of redlock: mock what is imported now$/],
  ["import {{ 'redlock'", /^1: cannot be read: /],
])('what an import is not sure of is left: %s', (code, why) => {
  expect(rewritten(code)).toBe(code)
  expect(left(code, false)).toEqual([expect.stringMatching(why)])
})

test.each([
  ["const Redlock = require('redlock')", ['createLocks', 'redis']],
  ["const R = require('redlock')", ['createLocks', 'redis'], 'R'],
  ['const { default: Redlock } = require("redlock");', ['createLocks', 'redis']],
  ["const { Redlock } = require('ringfence/redlock')", ['createLocks', 'redis']],
  ["const Redlock = require('redlock').default", ['createLocks', 'redis']],
])('a require is rewritten to our API as an import is: %s', (load, [core, engine], name = 'Redlock') => {
  const [quote, end] = [load.includes('"') ? '"' : "'", load.endsWith(';') ? ';' : '']
  const code = `${load}\nconst locks = new ${name}([client])\nlocks.using(['a'], 5000, async () => {})\n`
  expect(rewritten(code, { api: true })).toBe(
    `const { ${core} } = require(${quote}ringfence${quote})${end}\n` +
      `const { ${engine} } = require(${quote}ringfence/redis${quote})${end}\n` +
      "const locks = createLocks(redis(client), { wait: 2000 })\nlocks.using('a', { ttl: 5000 }, async () => {})\n",
  )
})

test.each([
  ["let Redlock = require('redlock')\nnew Redlock([a])", /only `const Redlock = require\(\)` at the top of a file/],
  ["const a = 1, Redlock = require('redlock')", /only `const Redlock = require\(\)` at the top of a file/],
  [
    "function f() {\n  const Redlock = require('redlock')\n  return new Redlock([a])\n}",
    /only `const Redlock = require/,
  ],
  ["const Redlock = require('ringfence/redlock')\nnew Redlock([a])", /only `const Redlock = require/],
  ["const { Redlock, ...more } = require('ringfence/redlock')", /only `const Redlock = require/],
  ["const { Redlock, Lock } = require('ringfence/redlock')", /^1: keeps redlock's API: Lock has no counterpart of/],
  [
    "const {\n  default: Redlock,\n  ResourceLockedError: Held,\n} = require('redlock')\nnew Redlock([a])",
    /^3: keeps redlock's API: ResourceLockedError: Held has no counterpart of the same shape$/,
  ],
])('a require that is not understood keeps redlock’s API: %s', (code, why) => {
  expect(left(code, true)).toEqual(expect.arrayContaining([expect.stringMatching(why)]))
  expect(migrated(code, true).code).not.toContain('createLocks')
})

test.each([false, true])('a duration that ours refuses is listed, also with --api %s', (api) => {
  const code = WITH(
    "const SHORT = 20\nredlock.using(['a'], SHORT, async () => {})\nconst lock = await redlock.acquire(['b'], 49)\n" +
      "await lock.extend(10)\nawait redlock.using(['c'], 50, async () => {})\n",
  )
  expect(left(code, api)).toEqual([
    '4: a duration of 20 ms is refused: write 50 or more',
    '5: a duration of 49 ms is refused: write 50 or more',
    '6: a duration of 10 ms is refused: write 50 or more',
  ])
})

test('scripts of your own are listed, and the import is rewritten', () => {
  const code = "import Redlock from 'redlock'\nnew Redlock([a], {}, { acquireScript: '' })"
  expect(rewritten(code)).toContain("from 'ringfence/redlock'")
  expect(left(code, false)).toEqual(['2: scripts of your own (the third argument) have no counterpart'])
})

test('a file without redlock, or with the word alone, stays as it is', () => {
  for (const code of ['const a = 1', "const text = 'redlock'", "import x from 'redlock-universal'"]) {
    expect(migrated(code, true)).toEqual({ code, done: [], left: [] })
  }
})

test('the API: one server', () => {
  const before = `import Client from 'ioredis';
import Redlock from "redlock";

const TTL = 5_000;
const redis = new Client();
const redlock = new Redlock([redis], { retryCount: 50, retryDelay: 200, retryJitter: 100 });

export async function charge(id: string) {
  return redlock.using([\`order:\${id}\`], TTL, async (signal) => {
    if (signal.aborted) throw signal.error;
    await pay(id, { signal });
  });
}

export async function both(ttl: number) {
  let lock = await redlock.acquire(['a', 'b'], ttl);
  try {
    lock = await lock.extend(TTL);
    console.log(lock.resources);
  } finally {
    await lock.release();
  }
}

export async function once() {
  let lock;
  try {
    lock = await redlock.acquire(["job"], 1000, { retryCount: 0 });
    await redlock.extend(lock, 2000);
  } finally {
    if (lock) await redlock.release(lock);
  }
}
`
  expect(rewritten(before, { api: true })).toBe(`import Client from 'ioredis';
import { createLocks } from "ringfence";
import { redis as redisEngine } from "ringfence/redis";

const TTL = 5_000;
const redis = new Client();
const redlock = createLocks(redisEngine(redis), { wait: 10000 });

export async function charge(id: string) {
  return redlock.using(\`order:\${id}\`, { ttl: TTL }, async ({ signal }) => {
    if (signal.aborted) throw signal.reason;
    await pay(id, { signal });
  });
}

export async function both(ttl: number) {
  let lock = await redlock.acquire(['a', 'b'], { ttl, renew: false });
  try {
    await lock.extend(TTL);
    console.log(lock.resources);
  } finally {
    await lock.release();
  }
}

export async function once() {
  let lock;
  try {
    lock = await redlock.acquire("job", { ttl: 1000, renew: false, wait: 0 });
    await lock.extend(2000);
  } finally {
    if (lock) await lock.release();
  }
}
`)
})

test('what was done is told in one line, also where lines end with a semicolon', () => {
  const code = "const Redlock = require('redlock');\nconst locks = new Redlock([client]);\n"
  expect(migrated(code, true).done[0]).toEqual({
    line: 1,
    text: "now const { createLocks } = require('ringfence'); const { redis } = require('ringfence/redis');",
  })
})

test('a signal that is handed on is rewritten, and is to be looked at', () => {
  const code = WITH("await redlock.using(['a'], 100, async (signal) => fetch(url, { signal }))")
  expect(rewritten(code, { api: true })).toContain('async ({ signal }) => fetch(url, { signal })')
  expect(left(code, true)).toEqual(['3: signal is handed on: what reads its `error` there must read `reason`'])
})

test('settings that have no counterpart are left out, and listed with their lines', () => {
  const code = `import Redlock from 'redlock'
const redlock = new Redlock([a], {
  'retryJitter': 100,
})
await redlock.using(['a'], 1000, { automaticExtensionThreshold: 200 }, () => work())`
  expect(rewritten(code, { api: true })).not.toMatch(/retryJitter|automaticExtensionThreshold/)
  expect(left(code, true)).toEqual([
    '3: retryJitter is left out: waiters are woken by a release',
    '5: automaticExtensionThreshold is left out: renewal is at a third of the ttl',
  ])
})

test('the API: a quorum, settings, and other forms of the routine', () => {
  const before = `import { Redlock as Locker } from 'ringfence/redlock'
const locker = new Locker([a, b, c], { driftFactor: 0.02, retryCount: -1 })
await locker.using(['x'], 30 * 1000, { retryCount: 5 }, async s => s.error)
await locker.using(names, 1000, function (signal: AbortSignal) { return work(signal) })
await locker.using(['x', ...names], 1000, () => work())
`
  expect(rewritten(before, { api: true })).toBe(`import { createLocks } from 'ringfence'
import { redlock } from 'ringfence/redis'
const locker = createLocks(redlock([a, b, c], { drift: 0.02 }), { wait: Infinity })
await locker.using('x', { ttl: 30 * 1000, wait: 1000 }, async ({ signal: s }) => s.reason)
await locker.using(names, { ttl: 1000 }, function ({ signal }) { return work(signal) })
await locker.using(['x', ...names], { ttl: 1000 }, () => work())
`)
})

test.each([
  ["redlock.on('error', log)", /on\(\): what single nodes answer/],
  ['await redlock.quit()', /quit\(\): close\(\) leaves the clients open/],
  [
    "await redlock.lock('a', 100)",
    /lock\(\) of redlock 4 .*: by hand, it becomes `acquire\(names, \{ ttl, renew: false \}\)`/,
  ],
  ['await redlock.unlock(lock)', /by hand, it becomes `lease\.release\(\)`/],
  ['redlock.toString()', /toString\(\) has no counterpart/],
  ['error instanceof Redlock.LockError', /LockError becomes HeldError, WaitTimeoutError, QuorumError or EngineError/],
  ['start(redlock)', /redlock is handed on/],
  ['const locks = { redlock }', /redlock is handed on/],
  ["redlock['acquire'](['a'], 100)", /redlock is handed on/],
  ["redlock.acquire(['a'], 100).then(work)", /does not go into a variable/],
  ["keep(await redlock.acquire(['a'], 100))", /does not go into a variable/],
  ["const lock = await redlock.acquire(['a'], 100)\nkeep(lock)", /keep\(lock\): this use of a lock is not understood/],
  ["const lock = await redlock.acquire(['a'], 100)\nlock.expiration", /lock\.expiration: this use/],
  ["const lock = await redlock.acquire(['a'], 100)\nconst result = await lock.release()", /this use of a lock/],
  ["const lock = await redlock.acquire(['a'], 100)\nconst next = await lock.extend(100)", /this use of a lock/],
  ['await redlock.release(other)', /cannot be seen which lock/],
  ["await redlock.using(['a'], 100, routine)", /not a function that is written here/],
  ["await redlock.using(['a'], 100, async ({ aborted }) => aborted)", /not a plain name/],
  ["await redlock.using(['a'], 100, settings, async () => 1)", /settings are not numbers/],
  ['await redlock.using(...args)', /there is no duration|arguments cannot be seen/],
  ['function other(redlock) { redlock.anything() }', /redlock is declared more than once/],
  ["const createLocks = 1\nawait redlock.using(['a'], 100, () => 1)", /the name createLocks is taken/],
  ['new Redlock([client]).acquire([], 100)', /not a constant of this file/],
  ['class Mine extends Redlock {}', /something else than `new`/],
])('a use that is not understood keeps the API of redlock for the whole file: %s', (text, why) => {
  const code = WITH(text)
  expect(rewritten(code, { api: true })).toBe(code.replace("'redlock'", "'ringfence/redlock'"))
  const reasons = left(code, true)
  expect(reasons[0]).toMatch(/^\d: keeps redlock's API: /)
  expect(reasons.join('\n')).toMatch(why)
})

test.each([
  ['export const redlock = new Redlock([client])', /is exported/],
  ['const redlock = new Redlock(clients)', /how many clients/],
  ['const redlock = new Redlock([...clients])', /how many clients/],
  ['const redlock = new Redlock([a, b])', /expected one client, or three or more/],
  ['const redlock = new Redlock([a], settings)', /settings are not numbers/],
  ['const redlock = new Redlock([a], { retryCount: limit })', /settings are not numbers/],
  ['const redlock = new Redlock([a], { retryDelay: 0 })', /retries without a pause/],
  ['const redlock: Redlock = new Redlock([a])', /type of redlock|something else/],
  ['const redlock = new Redlock([a, b, c])\nawait redlock.using([], 120_000, () => 1)', /above 60 s/],
  ['const redlock = new Redlock([a, b, c])\nawait redlock.using([], ttl, () => 1)', /above 60 s/],
  ['export { Redlock }', /something else than `new`/],
])('nor is one that is made in a way that cannot be read: %s', (text, why) => {
  const code = `import Redlock from 'redlock'\n${text}`
  expect(rewritten(code, { api: true })).toBe(code.replace("'redlock'", "'ringfence/redlock'"))
  expect(left(code, true).join('\n')).toMatch(why)
})

test('named imports and other ways to load it keep the API of redlock', () => {
  for (const code of [
    "import Redlock, { ExecutionError } from 'redlock'\nconst r = new Redlock([a])",
    "import type Redlock from 'redlock'",
    "export * from 'redlock'",
  ]) {
    expect(rewritten(code, { api: true })).toContain("'ringfence/redlock'")
    expect(left(code, true)).not.toEqual([])
  }
})

test('JavaScript and JSX are read, too', () => {
  const code = "import Redlock from 'redlock'\nconst page = <a href='x'>{1}</a>"
  expect(rewritten(code, { file: 'a.jsx' })).toContain('ringfence/redlock')
  expect(rewritten(code, { file: 'a.tsx' })).toContain('ringfence/redlock')
})
