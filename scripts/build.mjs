// Bundles the JavaScript of the entry points of package.json and of the command into dist/. tsc writes the types beside it.
// Why, and why like this: docs/decisions/0013-bundled-by-rolldown.md.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const ROOT = fileURLToPath(new URL('../', import.meta.url))
const SRC = `${ROOT}src/`
const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'))

/** What is needed together is one file. The rest is as rolldown finds it: in the one file that needs it, or in a chunk. */
const LIBRARY = {
  // The errors among it: each class exists once, so that `instanceof` is right across entry points.
  core: /^[\w-]+\.ts$|^engines\/shared\/[\w-]+\.ts$/,
  sql: /^engines\/shared\/sql\//,
  // The engine for tests is made of it.
  memory: /^engines\/memory\.ts$/,
  http: /^engines\/shared\/http\//,
}
/** How Redis is reached, which is all that the guards need; and the engine, which ringfence/redlock is made of, too. */
const ENTRIES = {
  ...LIBRARY,
  'redis-client': /^engines\/redis\/(drivers\/|(client|pieces|sha1|slot|keys)\.ts)/,
  redis: /^engines\/redis\//,
}
const COMMAND = {
  ...LIBRARY,
  // What every verb needs; and what `run` and `elect` need besides.
  command:
    /^cli\/(?!main|help|manual|interrupt|listening|pauses|surroundings)[\w-]+\.ts$|^cli\/engines\/(address|connect|driver)\.ts$/,
  child: /^cli\/child\//,
  // What the verbs need that serve a page.
  listening: /^cli\/listening\.ts$/,
  // What the two engines and the guards of a store share.
  'sql-client': /^engines\/(postgres\/(statements|errors|drivers\/[\w-]+)|mariadb\/(errors|client))\.ts$/,
}

/** What rolldown adds for modules that are not like ours. It writes the file also where nothing needs it. */
const RUNTIME = 'rolldown-runtime'
const withoutRuntime = {
  name: 'without-runtime',
  generateBundle(_options, files) {
    const written = Object.values(files)
    const user = written.find(({ type, imports }) => type === 'chunk' && imports.some((name) => name.includes(RUNTIME)))
    if (user !== undefined) throw new Error(`${user.fileName} needs ${RUNTIME}`)
    for (const { fileName } of written.filter(({ fileName }) => fileName.includes(RUNTIME))) delete files[fileName]
  },
}

/** Values, not getters: none of them changes, and a chunk has many. */
const plainExports = {
  name: 'plain-exports',
  generateBundle(_options, files) {
    const getter =
      /Object\.defineProperty\(exports, "([\w$]+)", \{\s+enumerable: true,\s+get: function \(\) \{\s+return ([\w$]+);\s+\}\s+\}\);/g
    for (const file of Object.values(files)) {
      if (file.type === 'chunk') file.code = file.code.replace(getter, 'exports.$1 = $2;')
    }
  },
}

const entries = Object.values(manifest.exports).flatMap((target) => target.default ?? target.require?.default ?? [])
const files = await bundle(entries, { chunks: ENTRIES, folder: 'dist', entryFileNames: codeFile })
renameTypes()
for (const file of files.filter(({ isEntry }) => isEntry)) writeEntry(file)
// Apart from the library: nobody imports a command, and it is to have few files.
const command = { chunks: COMMAND, folder: 'dist/cli', entryFileNames: '[name].cjs' }
await bundle([manifest.bin.ringfence], { ...command, sourcemapExcludeSources: true })

/** Where the code of an entry point is: that of `engines/redis/index.ts` in `chunks/redis.cjs`. That of `index.ts` is the core. */
function codeFile({ name, moduleIds }) {
  return moduleIds.length === 0
    ? '[name].cjs'
    : `chunks/${name
        .replace(/\/index$/, '')
        .split('/')
        .at(-1)}.cjs`
}

/** For an `import`, Node 20 searches all of a CommonJS file for the names that it exports; for 170 kB that takes 50 ms. So it gets a small one. */
function writeEntry({ name, fileName, exports }) {
  if (fileName === `${name}.cjs`) return
  const code = `${'../'.repeat(name.split('/').length - 1)}${fileName}`
  const lines = exports.toSorted().map((exported) => `exports.${exported} = code.${exported};`)
  if (exports.includes('default')) lines.unshift('Object.defineProperty(exports, "__esModule", { value: true });')
  const text = ['"use strict";', `const code = require("${code}");`, ...lines, '']
  writeFileSync(`${ROOT}dist/${name}.cjs`, text.join('\n'))
  if (exports.includes('default')) writeModule(`${ROOT}dist/${name}`)
}

/** For modules, the default export of CommonJS is all of it. So this entry point needs a module that exports the class by its name. */
function writeModule(path) {
  const { default: value, ...named } = createRequire(import.meta.url)(`${path}.cjs`)
  const same = Object.keys(named).find((name) => named[name] === value)
  if (same === undefined) throw new Error(`${path}.cjs exports its default under no other name`)
  const from = `from './${path.split('/').at(-1)}.cjs'`
  writeFileSync(`${path}.js`, `export { ${Object.keys(named).join(', ')}, ${same} as default } ${from}\n`)
  writeFileSync(`${path}.d.ts`, `export * ${from}\nexport { ${same} as default } ${from}\n`)
}

/** tsc writes the types of ES modules, because that is what the sources are. */
function renameTypes() {
  const written = readdirSync(`${ROOT}dist`, { recursive: true, encoding: 'utf8' })
  for (const file of written.filter((name) => name.endsWith('.d.ts'))) {
    const text = readFileSync(`${ROOT}dist/${file}`, 'utf8')
    const renamed = text.replace(/(?<=(from |import\()'\.[^']*)\.ts(?=')/g, '.cjs')
    writeFileSync(`${ROOT}dist/${file.replace(/ts$/, 'cts')}`, renamed)
    rmSync(`${ROOT}dist/${file}`)
  }
}

async function bundle(targets, { chunks, folder, ...output }) {
  const from = `${SRC}${folder.replace(/^dist\/?/, '')}`.replace(/\/?$/, '/')
  const names = targets.map((target) => target.slice(`./${folder}/`.length).replace(/\.cjs$/, ''))
  const made = await rolldown({
    input: Object.fromEntries(names.map((name) => [name, `${from}${name}.ts`])),
    platform: 'node',
    external: [/^node:/, ...Object.keys(manifest.peerDependencies)],
    tsconfig: false,
    // Nothing is left out: what only checks, as `decodeURIComponent` in a `try`, is taken for something without effect.
    treeshake: false,
    // Which source a part is from is in the map.
    experimental: { attachDebugInfo: 'none' },
    transform: { target: 'node20.19' },
    plugins: [withoutRuntime, plainExports],
    onLog(level, { message }) {
      throw new Error(`${level}: ${message}`)
    },
  })
  const { output: files } = await made.write({
    ...output,
    format: 'cjs',
    strict: true,
    // Nobody asks what kind of object the exports of a chunk are.
    generatedCode: { symbols: false },
    exports: 'named',
    dir: `${ROOT}${folder}`,
    sourcemap: true,
    // Stack traces are for people.
    minify: false,
    minifyInternalExports: false,
    comments: { jsdoc: false },
    chunkFileNames: (chunk) => `${nameOf(chunk, chunks, from)}.cjs`,
    codeSplitting: {
      groups: Object.entries(chunks).map(([name, pattern]) => ({ name, test: (id) => pattern.test(inSources(id)) })),
    },
  })
  return files
}

function inSources(id) {
  return id.startsWith(SRC) ? id.slice(SRC.length) : ''
}

/** Names that say what is in the file and do not change with it: they stand in stack traces. */
function nameOf({ name, facadeModuleId, moduleIds }, chunks, from) {
  // Loaded by `import()`: where its source is.
  if (facadeModuleId) return facadeModuleId.slice(from.length).replace(/\.ts$/, '')
  if (name in chunks || name === RUNTIME) return `chunks/${name}`
  // What the guards and an engine share: how its store is reached.
  const homes = new Set(moduleIds.map((id) => /^engines\/(\w+)\//.exec(inSources(id))?.[1]))
  const [engine] = homes
  if (homes.size > 1 || engine === undefined) throw new Error(`a chunk without a name, of ${moduleIds.join(', ')}`)
  return `chunks/${engine}-client`
}
