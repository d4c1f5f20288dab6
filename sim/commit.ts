import { execFileSync } from 'node:child_process'

/** What is kept of runs is no code. */
const CODE = ['--', 'src', 'sim', ':!sim/gate/results.json']

/** Which code this is: the last commit that changed it. A history is the same only for the same one. */
export function commit(): string {
  try {
    const changed = git('status', '--porcelain', ...CODE) === '' ? '' : ' with changes'
    return `${git('log', '-1', '--format=%h', ...CODE)}${changed}`
  } catch {
    return 'unknown (not a git checkout)'
  }
}

function git(...args: string[]): string {
  return execFileSync('git', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
}
