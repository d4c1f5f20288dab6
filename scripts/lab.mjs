// Bundles the page of the lab into a folder: node scripts/lab.mjs DIR
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { rolldown } from 'rolldown'

const ROOT = path.join(import.meta.dirname, '..')

/** Of a lab that is a part of the site: relative, because the site may lie below any address. */
const TO_THE_SITE = `<nav aria-label="The site">
        <a href="../lab.html">About the lab</a>
        <a href="../index.html">ringfence</a>
      </nav>`

export async function buildLab(folder, { ofSite = false } = {}) {
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
  cpSync(path.join(ROOT, 'lab/lab.css'), path.join(folder, 'lab.css'))
  const page = readFileSync(path.join(ROOT, 'lab/index.html'), 'utf8')
  writeFileSync(path.join(folder, 'index.html'), finished(page, ofSite))
}

/** The one script within the page is allowed by its hash, and no other one. */
function finished(page, ofSite) {
  const [, script] = /<script>([^<]*)<\/script>/.exec(page)
  const hash = createHash('sha256').update(script).digest('base64')
  return page
    .replace("script-src 'self'", `script-src 'self' 'sha256-${hash}'`)
    .replace('<!-- links to the site -->', ofSite ? TO_THE_SITE : '')
}

if (process.argv[1] === import.meta.filename) await buildLab(path.resolve(process.argv[2] ?? 'dist/lab'))
