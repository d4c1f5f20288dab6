// Bundles the page of the lab into a folder: node scripts/lab.mjs DIR
import { cpSync, mkdirSync } from 'node:fs'
import path from 'node:path'
import { rolldown } from 'rolldown'

const ROOT = path.join(import.meta.dirname, '..')

export async function buildLab(folder) {
  mkdirSync(folder, { recursive: true })
  const made = await rolldown({
    input: path.join(ROOT, 'lab/app.ts'),
    platform: 'browser',
    tsconfig: false,
    transform: { target: 'es2022' },
    onLog(level, { message }) {
      throw new Error(`${level}: ${message}`)
    },
  })
  await made.write({ file: path.join(folder, 'lab.js'), format: 'esm', minify: true })
  for (const file of ['index.html', 'lab.css']) cpSync(path.join(ROOT, 'lab', file), path.join(folder, file))
}

if (process.argv[1] === import.meta.filename) await buildLab(path.resolve(process.argv[2] ?? 'dist/lab'))
