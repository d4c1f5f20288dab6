import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { FIRST } from './longest-first.ts'
import { publicApi } from '../scripts/public-api.ts'

const ROOT = resolve(import.meta.dirname, '..')
const CODE = /\.(ts|mts|js|mjs)$/

interface Source {
  /** From the root of the project, with slashes. */
  readonly path: string
  readonly text: string
  /** Without comments. */
  readonly code: string
}

function files(...folders: string[]): Source[] {
  return folders
    .filter((folder) => existsSync(join(ROOT, folder)))
    .flatMap((folder) =>
      readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`),
    )
    .filter((path) => CODE.test(path))
    .map((path) => {
      const text = readFileSync(join(ROOT, path), 'utf8')
      return { path, text, code: withoutComments(text) }
    })
}

/** Everything in these folders, and these files, that people read. Without what Redis itself says, which is quoted where it is recognised. */
function texts(...folders: string[]): Source[] {
  const paths = folders.flatMap((folder) =>
    folder.includes('.')
      ? [folder]
      : readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`),
  )
  return paths
    .filter((path) => /\.(ts|mts|js|mjs|cjs|md|html|css|yml|json|pml|1)$/.test(path))
    .map((path) => {
      const text = readFileSync(join(ROOT, path), 'utf8').replace(/can't (run this command|access at least|\()/g, '$1')
      return { path, text, code: text }
    })
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '$1')
}

/** Every place where a pattern occurs, as `path:line: what`, so that a failure says where to look. */
function places(sources: readonly Source[], pattern: RegExp, of: 'text' | 'code' = 'code'): string[] {
  return sources.flatMap((source) =>
    [...source[of].matchAll(new RegExp(pattern, 'g'))].map((match) => {
      const line = source.text.slice(0, source.text.indexOf(match[0])).split('\n').length
      return `${source.path}:${line}: ${match[0].trim()}`
    }),
  )
}

function except(sources: readonly Source[], ...paths: string[]): Source[] {
  return sources.filter(({ path }) => !paths.includes(path))
}

const src = files('src')
const everything = files('src', 'test', 'sim', 'schedules', 'chaos', 'bench', 'examples', 'scripts', 'harness')

test('there is something to look at', () => {
  expect(src.length).toBeGreaterThan(20)
  expect(src.map(({ path }) => path)).toContain('src/clock.ts')
})

describe('time and chance', () => {
  test('only src/clock.ts reads a clock or sets a timer', () => {
    const clock =
      /\bDate\.now\b|\bperformance\s*\.\s*\w+|\bnew Date\(|\bDate\(\)|\bset(?:Timeout|Interval|Immediate)\b|\bprocess\.(?:hrtime|uptime)\b|\bAbortSignal\.timeout\b|node:(?:timers|perf_hooks)/
    // The dashboard's page runs in a browser, where nothing is handed in: it has a clock of its own.
    // How long a process stood still is what `ringfence bench` measures: a clock that is handed in has no part in that.
    const own = ['src/clock.ts', 'src/dashboard/page/clock.ts', 'src/cli/pauses.ts']
    expect(places(except(src, ...own), clock)).toEqual([])
    expect(places(src, clock).length).toBeGreaterThan(2)
  })

  test('only src/random.ts draws random numbers', () => {
    const chance = /\bMath\.random\b|\brandom(?:Bytes|UUID|Int|FillSync|Fill)\b|\bgetRandomValues\b/
    expect(places(except(src, 'src/random.ts'), chance)).toEqual([])
    expect(places(src, chance).length).toBeGreaterThan(0)
  })
})

interface Import {
  readonly path: string
  readonly target: string
}

function imports(sources: readonly Source[]): Import[] {
  return sources.flatMap(({ path, code }) =>
    [...code.matchAll(/\bfrom '([^']+)'|\bimport\(\s*'([^']+)'|^import '([^']+)'/gm)].map((match) => {
      const target = match[1] ?? match[2] ?? match[3]!
      return { path, target: target.startsWith('.') ? join(dirname(path), target) : target }
    }),
  )
}

function shown({ path, target }: Import): string {
  return `${path} -> ${target}`
}

/** The folder or the file of an engine. */
function home(path: string): string {
  return path.split('/').slice(0, 3).join('/').replace(/\.ts$/, '')
}

describe('imports', () => {
  const all = imports(src)
  /** Not an engine but what several have in common; it imports none of them. */
  const SHARED = ['src/engines/shared']

  test('no source file imports a package: drivers are handed in by the user', () => {
    // The command connects by URL, so it loads drivers itself, when they are needed. The file engine has no server and so no
    // client to be handed in: it loads its library itself. OpenTelemetry is reached by its API alone.
    const loaders = /^src\/(cli\/|otel\/|engines\/file\/client\.ts$)/
    const packages = all.filter(({ path, target }) => !/^(node:|src\/)/.test(target) && !loaders.test(path))
    expect(packages.map(shown)).toEqual([])
    expect(all.length).toBeGreaterThan(50)
  })

  test('an engine imports of the core only the contract and the small tools', () => {
    const allowed = [
      'arguments',
      'back-off',
      'by-name',
      'diagnosis',
      'engine',
      'clock',
      'random',
      'duration',
      'errors',
      'deadlines',
      'latest',
      'owner',
      'other-software',
      'platform',
    ].map((name) => `src/${name}.ts`)
    const outside = all
      .filter(({ path }) => path.startsWith('src/engines/'))
      .filter(
        ({ target }) => target.startsWith('src/') && !target.startsWith('src/engines/') && !allowed.includes(target),
      )
    expect(outside.map(shown)).toEqual([])
  })

  test('an engine imports no other engine', () => {
    const strangers = all
      .filter(({ path, target }) => path.startsWith('src/engines/') && target.startsWith('src/engines/'))
      .filter(({ path, target }) => home(path) !== home(target) && !SHARED.includes(home(target)))
    expect(strangers.map(shown)).toEqual([])
  })

  test('a guard imports of the core only small tools, and of an engine only how its store is reached', () => {
    const core = ['arguments', 'clock', 'deadlines', 'duration', 'errors', 'events', 'options', 'random', 'runs']
    const redis = ['client', 'drivers/recognise', 'drivers/server-errors', 'keys', 'sha1', 'slot'].map(
      (name) => `redis/${name}`,
    )
    const sql = ['postgres/drivers/recognise', 'postgres/errors', 'mariadb/client', 'mariadb/errors']
    const shared = ['in-time', 'shape', 'sql/client', 'sql/transaction'].map((name) => `shared/${name}`)
    const reach = [...redis, ...sql, ...shared, 'file/database', 'file/errors', 'mongodb/durable-writes']
    const allowed = [...core.map((name) => `src/${name}.ts`), ...reach.map((name) => `src/engines/${name}.ts`)]
    const ofGuards = all.filter(({ path }) => path.startsWith('src/guards/'))
    const outside = ofGuards.filter(
      ({ target }) => target.startsWith('src/') && !target.startsWith('src/guards/') && !allowed.includes(target),
    )
    expect(outside.map(shown)).toEqual([])
    expect(ofGuards.length).toBeGreaterThan(20)
  })

  test('what attaches OpenTelemetry imports its API, the events, and the small tools', () => {
    const allowed = /^(@opentelemetry\/api$|src\/(otel\/|guards\/guard\.ts$|(arguments|duration|events)\.ts$))/
    const own = all.filter(({ path }) => path.startsWith('src/otel/'))
    expect(own.filter(({ target }) => !allowed.test(target)).map(shown)).toEqual([])
    expect(own.length).toBeGreaterThan(10)
  })

  test('the dashboard imports of the core what locks are made of, and no engine; its page only itself', () => {
    const core = [
      'arguments',
      'clock',
      'deadlines',
      'diagnosis',
      'duration',
      'engine',
      'engines/shared/in-time',
      'errors',
      'events',
      'lease',
      'locks',
      'options',
      'owner',
      'random',
      'runs',
      'status',
    ]
    const allowed = core.map((name) => `src/${name}.ts`)
    const own = all.filter(({ path }) => path.startsWith('src/dashboard/'))
    const server = own.filter(({ path }) => !path.startsWith('src/dashboard/page/'))
    const outside = server.filter(
      ({ target }) =>
        target.startsWith('src/') &&
        (!target.startsWith('src/dashboard/') || target.startsWith('src/dashboard/page/')) &&
        !allowed.includes(target),
    )
    expect(outside.map(shown)).toEqual([])
    const page = own.filter(({ path }) => path.startsWith('src/dashboard/page/'))
    const strangers = page.filter(({ target }) => !/^src\/dashboard\/(page\/[^/]+|protocol)\.ts$/.test(target))
    expect(strangers.map(shown)).toEqual([])
    expect([server.length > 20, page.length > 0]).toEqual([true, true])
  })

  test('the core imports no engine, no guard, no command, no dashboard and no OpenTelemetry', () => {
    const core = all.filter(({ path }) => dirname(path) === 'src')
    const wrong = core.filter(({ target }) => /^src\/(engines|guards|cli|dashboard|otel)\//.test(target))
    expect(wrong.map(shown)).toEqual([])
    expect(core.length).toBeGreaterThan(20)
  })

  test('the command imports what users of the package can import, and the small tools', () => {
    const allowed =
      /^src\/(cli\/|index\.ts$|((engines|guards)\/\w+|dashboard|guards)(\/index)?\.ts$|(arguments|clock|diagnosis|duration|latest|owner|random)\.ts$)/
    const own = all.filter(({ path }) => path.startsWith('src/cli/'))
    const wrong = own.filter(({ target }) => target.startsWith('src/') && !allowed.test(target))
    expect(wrong.map(shown)).toEqual([])
    expect(own.length).toBeGreaterThan(20)
  })

  test('the small tools and the contract import nothing of the core but each other', () => {
    const tools = [
      'arguments',
      'by-name',
      'diagnosis',
      'engine',
      'clock',
      'random',
      'duration',
      'errors',
      'events',
      'owner',
      'queue',
      'deadlines',
      'platform',
    ].map((name) => `src/${name}.ts`)
    const wrong = all.filter(
      ({ path, target }) => tools.includes(path) && target.startsWith('src/') && !tools.includes(target),
    )
    expect(wrong.map(shown)).toEqual([])
  })

  test.each(['src/engine.ts', 'src/dashboard/protocol.ts'])('the contract in %s is types only', (file) => {
    const contract = src.find(({ path }) => path === file)!
    expect(contract.code).not.toMatch(/^(export )?(const|let|function|class|abstract)\b/m)
    expect(contract.code).not.toMatch(/^import (?!type\b)/m)
  })

  test('nothing is imported in a circle', () => {
    const targets = new Map<string, string[]>()
    for (const { path, code } of src) {
      const values = [...code.matchAll(/^(?:import|export)(?! type)[^']*from '(\.[^']+)'/gm)]
      targets.set(
        path,
        values.map((match) => join(dirname(path), match[1]!)),
      )
    }
    const circles: string[] = []
    const visit = (path: string, trail: readonly string[]): void => {
      if (trail.includes(path)) circles.push([...trail.slice(trail.indexOf(path)), path].join(' -> '))
      else for (const target of targets.get(path) ?? []) visit(target, [...trail, path])
    }
    for (const path of targets.keys()) visit(path, [])
    expect(circles).toEqual([])
  })
})

describe('files', () => {
  test.each([
    ['src', 400],
    ['sim', 400],
    ['schedules', 400],
    ['chaos', 400],
    ['bench', 400],
    ['scripts', 400],
    ['harness', 400],
    ['test', 600],
  ])('of %s have at most %d lines', (folder, most) => {
    const lines = files(folder).map(({ path, text }) => ({
      path,
      lines: text.split('\n').length - 1,
    }))
    expect(lines.filter(({ lines }) => lines > most)).toEqual([])
  })

  test('have names in kebab-case that say what is in them', () => {
    const names = everything.map(({ path }) => path)
    expect(
      names.filter((path) => !/^[a-z0-9]+(-[a-z0-9]+)*(\.(test|test-d|config|d))?\.\w+$/.test(basename(path))),
    ).toEqual([])
    expect(names.filter((path) => /\b(utils?|helpers?|misc|common)\.\w+$/.test(path))).toEqual([])
  })

  test('have no enum and no `any`, and leave nothing to be done', () => {
    expect(places(everything, /^\s*(export )?(const )?enum \w+/m)).toEqual([])
    const types = everything.map((source) => ({
      ...source,
      code: source.code.replace(/'[^'\n]*'|`[^`]*`|"[^"\n]*"/g, ''),
    }))
    expect(places(types, /[:<,|&]\s*any\b|\bas any\b/)).toEqual([])
    expect(places(everything, /\bTO[D]O\b|\bFIX[M]E\b|\bX[X]X\b/, 'text')).toEqual([])
  })

  test('say things in words that need not be decoded', () => {
    const phrases =
      /\b([Ww]hom?ever|in vain|all the same|[Ss]o (long|often|many)|[Tt]old of|be had|he|his|him|Answers (how|whether|when|\d))\b|\b([Cc]an|[Dd]on|[Dd]oesn|[Ii]sn)['’]t\b|([.:;] |\/\/ )[Ww]ho (comes|follows|needs|releases|started|wants|wins) /
    const read = texts('src', 'docs', 'lab', 'examples', 'sim', 'man', 'README.md', 'CHANGELOG.md', 'SECURITY.md')
    expect(places(read, phrases, 'text')).toEqual([])
    expect(read.length).toBeGreaterThan(500)
  })

  test('have one type name for one thing, exported or not', () => {
    const files = new Map<string, string[]>()
    for (const { path, code } of src) {
      for (const match of code.matchAll(/^(?:export )?(?:declare |abstract )*(?:type|interface|class) (\w+)/gm)) {
        files.set(match[1]!, [...(files.get(match[1]!) ?? []), path])
      }
    }
    const repeated = [...files]
      .filter(([, paths]) => paths.length > 1)
      .map(([name, paths]) => `${name}: ${paths.join(', ')}`)
    expect(repeated).toEqual([])
    expect(files.size).toBeGreaterThan(400)
  })

  test('use named exports and #private', () => {
    expect(places(src, /^export default\b/m)).toEqual([])
    expect(places(src, /^\s+(private|protected) \w+/m)).toEqual([])
  })
})

describe('tests', () => {
  test('are all run: none is left alone, skipped or only announced', () => {
    expect(places(files('test', 'sim'), /\b(?:it|test|describe|suite)\.(?:only|skip|todo|fails)\b/)).toEqual([])
    expect(places(files('test', 'sim'), /\bx(?:it|describe|test)\(/)).toEqual([])
  })
})

test('the files that are to start first exist', () => {
  expect(FIRST.filter((name) => !existsSync(join(ROOT, `test/${name}.test.ts`)))).toEqual([])
})

describe('the public API', () => {
  const FILE = join(ROOT, 'test/public-api.txt')
  const UPDATE = 'UPDATE_API=1 npx vitest run test/tidy.test.ts'

  test('is what was reviewed', () => {
    const api = `What users of the package see. A change here is a change for them. Update: ${UPDATE}\n\n${publicApi(ROOT)}`
    if (process.env['UPDATE_API'] === '1') writeFileSync(FILE, api)
    const reviewed = existsSync(FILE) ? readFileSync(FILE, 'utf8') : ''
    expect(api, `the public API has changed; if that is meant, run: ${UPDATE}`).toBe(reviewed)
  })

  test('is in terms that TypeScript knew before 5.7, when arrays of bytes became generic', () => {
    expect(readFileSync(FILE, 'utf8')).not.toMatch(/\b(Uint8Array|Buffer)</)
  })

  test('names every entry of package.json', () => {
    const api = readFileSync(FILE, 'utf8')
    const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      exports: Record<string, unknown>
    }
    const entries = Object.keys(manifest.exports).filter((path) => path !== './package.json')
    for (const path of entries) expect(api).toContain(`# ringfence${path.slice(1)}\n`)
  })
})
