import { execFileSync } from 'node:child_process'

/** Which code this is; a history is the same only for the same one. */
export function commit(): string {
  try {
    const changed = git('status', '--porcelain', '--', 'src', 'sim') === '' ? '' : ' with changes'
    return `${git('rev-parse', '--short', 'HEAD')}${changed}`
  } catch {
    return 'unknown (not a git checkout)'
  }
}

function git(...args: string[]): string {
  return execFileSync('git', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
}
