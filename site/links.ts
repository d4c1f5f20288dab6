import path from 'node:path'

/** What a heading is called in a link, as on the pages of a forge: small letters, words joined by hyphens, nothing else. */
export function anchor(heading: string): string {
  return heading
    .replaceAll(/[`*]|\[([^\]]*)\]\([^)]*\)/g, '$1')
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
}

/** Where a file of the repository is on the site: `docs/` is its root, an index is its folder. */
export function pageOf(file: string): string {
  const page = file.startsWith('docs/') ? file.slice('docs/'.length) : file
  if (page === 'README.md') return file === 'README.md' ? 'index.md' : 'all.md'
  if (page.endsWith('/README.md')) return page.replace(/README\.md$/, 'index.md')
  // Programs and settings are shown as pages of their own.
  return page.endsWith('.md') ? page.toLowerCase() : `files/${file}.md`
}

const IMAGE = /\.(png|svg)$/

/** Links of a document, as they are on the site. What is in code stays as it is. */
export function relinked(text: string, file: string, seen: (target: string) => void): string {
  const outside = /```[\s\S]*?```|`[^`\n]*`|\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)/g
  return text.replaceAll(outside, (whole, target: string | undefined, heading: string | undefined) => {
    if (target === undefined) return whole
    const meant = path.posix.join(path.posix.dirname(file), decodeURI(target)).replace(/\/$/, '/README.md')
    seen(meant)
    if (IMAGE.test(meant)) return `](/${meant})`
    return `](/${pageOf(meant).replace(/(^|\/)index\.md$/, '$1')}${heading ?? ''})`
  })
}
