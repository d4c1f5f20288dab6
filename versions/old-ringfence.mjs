import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'

/** Runs this ringfence beside that of an older commit, on the same servers: `beside.ts`. Returns whether all was well. */
export function runBeside({ id, commit }) {
  if (spawnSync('git', ['cat-file', '-e', `${commit}^{commit}`]).status !== 0) {
    process.stdout.write(`${id}: skipped, because this clone has no such commit\n`)
    return true
  }
  const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-old-'))
  try {
    execFileSync('sh', ['-c', 'git archive "$1" | tar -x -C "$2"', 'sh', commit, folder])
    symlinkSync(path.resolve('node_modules'), path.join(folder, 'node_modules'))
    execFileSync('npm', ['run', '--silent', 'build'], { cwd: folder, stdio: 'inherit' })
    const { status } = spawnSync('npx', ['vitest', 'run', '--config', 'versions/vitest.config.ts'], {
      env: { ...process.env, RINGFENCE_OLD: folder },
      stdio: 'inherit',
    })
    return status === 0
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
