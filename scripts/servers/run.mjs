import { spawn } from 'node:child_process'

/** Runs a program to its end and returns what it printed. Rejects with the last lines of its errors. */
export function run(command, args, { env, cwd } = {}) {
  return new Promise((resolve, reject) => {
    // LC_ALL: the answers of apt and ldd are parsed, so they must not be translated.
    const child = spawn(command, args, { cwd, env: { ...process.env, LC_ALL: 'C', ...env } })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (text) => (stdout += text))
    child.stderr.setEncoding('utf8').on('data', (text) => (stderr += text))
    child.on('error', (error) => reject(new Error(`${command}: ${error.message}`)))
    child.on('close', (code, signal) => {
      if (code === 0) return resolve({ stdout, stderr })
      reject(new Error(`${command} ended with ${signal ?? code}: ${lastWords(stderr || stdout)}`))
    })
  })
}

/** apt marks what matters with `E:`; other programs say it last. */
function lastWords(output) {
  const lines = output.trim().split('\n')
  const errors = lines.filter((line) => line.startsWith('E: '))
  return (errors.length > 0 ? errors : lines.slice(-3)).join(' ').slice(0, 600)
}

export function progress(text) {
  process.stderr.write(`${text}\n`)
}
