// Bundles the JavaScript of the entry points of package.json and of the command into dist/. tsc writes the types beside it.
// Why, and why like this: docs/decisions/0013-bundled-by-rolldown.md.
import { readFileSync } from 'node:fs'
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
  'redis-client': /^engines\/redis\/(drivers\/|(client|pieces|slot|keys)\.ts)/,
  'redis-engine': /^engines\/redis\/(?!index\.ts)/,
}
const COMMAND = {
  ...LIBRARY,
  // What every verb needs; and what `run` and `elect` need besides.
  command: /^cli\/(?!main|help|manual|interrupt)[\w-]+\.ts$|^cli\/engines\/(address|connect|driver)\.ts$/,
  child: /^cli\/child\//,
  // What the two engines and the guards of a store share.
  'sql-client': /^engines\/(postgres\/(statements|errors|drivers\/[\w-]+)|mariadb\/(errors|client))\.ts$/,
}

/** What rolldown adds for modules that are not like ours. All files would load it, and none uses it. */
const RUNTIME = 'rolldown-runtime'
const withoutRuntime = {
  name: 'without-runtime',
  generateBundle(_options, files) {
    const runtime = Object.values(files).find(({ name }) => name === RUNTIME)
    if (runtime === undefined) return
    if (runtime.exports.length > 0) throw new Error(`${runtime.fileName} is used: ${runtime.exports.join(', ')}`)
    for (const file of Object.values(files)) {
      // The line stays, for the source map.
      if (file.type === 'chunk') file.code = file.code.replace(/^import "[./]+(chunks\/)?rolldown-runtime\.js";$/m, '')
    }
    delete files[runtime.fileName]
    delete files[`${runtime.fileName}.map`]
  },
}

const entries = Object.values(manifest.exports).flatMap((target) => target.default ?? [])
await bundle(entries, { chunks: ENTRIES, format: 'esm', extension: 'js', folder: 'dist' })
// CommonJS, because Node loads that faster, and a command is imported by nobody.
const command = { chunks: COMMAND, format: 'cjs', extension: 'cjs', folder: 'dist/cli' }
await bundle([manifest.bin.ringfence], { ...command, sourcemapExcludeSources: true })

async function bundle(targets, { chunks, extension, folder, ...output }) {
  const from = `${SRC}${folder.replace(/^dist\/?/, '')}`.replace(/\/?$/, '/')
  const names = targets.map((target) => target.slice(`./${folder}/`.length).replace(/\.c?js$/, ''))
  const made = await rolldown({
    input: Object.fromEntries(names.map((name) => [name, `${from}${name}.ts`])),
    platform: 'node',
    external: [/^node:/, ...Object.keys(manifest.peerDependencies)],
    tsconfig: false,
    // Nothing is left out: what only checks, as `decodeURIComponent` in a `try`, is taken for something without effect.
    treeshake: false,
    transform: { target: 'node20.19' },
    plugins: [withoutRuntime],
    onLog(level, { message }) {
      throw new Error(`${level}: ${message}`)
    },
  })
  await made.write({
    ...output,
    dir: `${ROOT}${folder}`,
    sourcemap: true,
    // Stack traces are for people.
    minify: false,
    minifyInternalExports: false,
    comments: { jsdoc: false },
    entryFileNames: `[name].${extension}`,
    chunkFileNames: (chunk) => `${nameOf(chunk, chunks, from)}.${extension}`,
    codeSplitting: {
      groups: Object.entries(chunks).map(([name, pattern]) => ({ name, test: (id) => pattern.test(inSources(id)) })),
    },
  })
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
