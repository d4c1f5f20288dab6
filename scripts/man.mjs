// Writes the man page from the same table that makes the help. A test sees to it that it is up to date.
import { mkdirSync, writeFileSync } from 'node:fs'
import { runnerImport } from 'vite'

const source = new URL('../src/cli/manual.ts', import.meta.url).pathname
const { module } = await runnerImport(source, { configFile: false })

const file = new URL('../man/ringfence.1', import.meta.url)
mkdirSync(new URL('.', file), { recursive: true })
writeFileSync(file, module.manual())
