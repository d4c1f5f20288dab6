import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { brotliCompress, gzip } from 'node:zlib'
import { packageFile } from './package-file.ts'
import { COMMON, Refused } from './problem.ts'

/** Also for the sources: only a build has the page as a browser wants it. */
const FOLDER = 'dist/dashboard/page/'

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}

const COMPRESSORS = { br: promisify(brotliCompress), gzip: promisify(gzip) }
type Encoding = keyof typeof COMPRESSORS | 'identity'

interface PageFile {
  readonly type: string
  readonly content: Buffer
  readonly tag: string
  readonly encoded: Partial<Record<Encoding, Promise<Buffer>>>
}

/** The files of the page: read once, all of them; whatever else lies on the disk has no address. */
export class Files {
  readonly #files: ReadonlyMap<string, PageFile>

  constructor() {
    const names = readdirSync(packageFile(FOLDER)).filter((name) => extension(name) in TYPES)
    this.#files = new Map(names.map((name) => [name, fileOf(name)]))
  }

  /** Undefined for a name that is none of them. A page of HTML is not had by its name: who gets it is decided elsewhere. */
  find(name: string): string | undefined {
    return this.#files.has(name) && extension(name) !== 'html' ? name : undefined
  }

  async answer(name: string, request: Request, status = 200): Promise<Response> {
    const file = this.#files.get(name)
    if (file === undefined) throw new Refused(404, `the page has no file ${name}`)
    const encoding = accepted(request.headers.get('accept-encoding') ?? '')
    const etag = `"${file.tag}-${encoding}"`
    const headers = { ...COMMON, 'cache-control': 'no-cache', etag, vary: 'accept-encoding, cookie, authorization' }
    if (status === 200 && isKnown(request.headers.get('if-none-match'), etag))
      return new Response(null, { status: 304, headers })
    const content = await this.#encoded(file, encoding)
    return new Response(request.method === 'HEAD' ? null : new Uint8Array(content), {
      status,
      headers: {
        ...headers,
        'content-type': file.type,
        'content-length': String(content.length),
        ...(encoding === 'identity' ? {} : { 'content-encoding': encoding }),
      },
    })
  }

  #encoded(file: PageFile, encoding: Encoding): Promise<Buffer> {
    file.encoded[encoding] ??=
      encoding === 'identity' ? Promise.resolve(file.content) : COMPRESSORS[encoding](file.content)
    return file.encoded[encoding]
  }
}

function fileOf(name: string): PageFile {
  const content = readFileSync(packageFile(FOLDER + name))
  const tag = createHash('sha256').update(content).digest('base64url').slice(0, 22)
  return { type: TYPES[extension(name)]!, content, tag, encoded: {} }
}

function extension(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1)
}

function accepted(header: string): Encoding {
  const offered = header
    .toLowerCase()
    .split(',')
    .map((part) => part.trim().split(/\s*;\s*/))
    .filter(([, quality]) => quality === undefined || !/^q=0(\.0*)?$/.test(quality))
    .map(([coding]) => coding)
  return offered.includes('br') ? 'br' : offered.includes('gzip') ? 'gzip' : 'identity'
}

function isKnown(header: string | null, etag: string): boolean {
  return header !== null && header.split(',').some((known) => known.trim().replace(/^W\//, '') === etag)
}
