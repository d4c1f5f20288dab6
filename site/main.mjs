// Builds the site from the documents of this repository into dist-site/, or serves it while they are being written.
//
//   npm run site              builds it
//   npm run site -- --dev     serves it, and builds a page again when its copy in .pages/ changes
//   npm run site -- --out DIR builds it elsewhere
import path from 'node:path'
import { parseArgs } from 'node:util'
import { runnerImport } from 'vite'
import { build, createServer } from 'vitepress'
import { buildLab } from '../scripts/lab.mjs'

const root = path.join(import.meta.dirname, '..')
const { values } = parseArgs({ options: { dev: { type: 'boolean' }, out: { type: 'string' } } })

const { module } = await runnerImport(path.join(import.meta.dirname, 'pages.ts'), {
  configFile: false,
  oxc: { target: 'es2022' },
})
await module.writePages(root, path.join(import.meta.dirname, '.pages'))
await buildLab(path.join(import.meta.dirname, '.pages/public/lab'), { ofSite: true })
if (values.dev === true) {
  const server = await createServer(import.meta.dirname)
  await server.listen()
  server.printUrls()
} else {
  const outDir = path.resolve(values.out ?? path.join(root, 'dist-site'))
  await build(import.meta.dirname, { outDir, logLevel: 'warn' })
  process.stdout.write(`${outDir}\n`)
}
