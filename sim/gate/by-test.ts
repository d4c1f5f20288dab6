import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { withBug, type Mutation } from './mutation.ts'
import type { Finding } from './trial.ts'

/** Of the checkout that the gate is run in, whose tests are run. */
const ROOT = path.resolve('.')
/** What is no source, and `node_modules`, which every copy shares. */
const LEFT_OUT = /^(node_modules|\.git|dist.*|coverage)$/

interface Outcome {
  readonly passed: number
  /** Of the tests that have failed. */
  readonly failed: readonly string[]
}

/** The test must fail in a copy of the checkout with the bug in it, and pass in the same copy without. */
export async function byTest(mutation: Mutation): Promise<Finding> {
  const { file, title } = mutation.test!
  const folder = mkdtempSync(path.join(tmpdir(), 'ringfence-gate-'))
  try {
    copyTo(folder)
    const without = await run(folder, file, title)
    if (without.failed.length > 0)
      throw new Error(`${mutation.name}: expected ${file} to pass without the bug, got ${told(without)}`)
    const changed = path.join(folder, mutation.file)
    writeFileSync(changed, withBug(readFileSync(changed, 'utf8'), mutation))
    const outcome = await run(folder, file, title)
    const [first] = outcome.failed
    if (first === undefined) return { caught: false, how: `not by ${file}: ${told(outcome)}` }
    return { caught: true, how: `${file}: ${first}` }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

function copyTo(folder: string): void {
  const isSource = (from: string): boolean => !LEFT_OUT.test(path.relative(ROOT, from))
  cpSync(ROOT, folder, { recursive: true, filter: isSource })
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
}

/** A test that fails now and then must not pass for one that sees the bug, nor for one that does not: it is not run once more. */
async function run(folder: string, file: string, title: string): Promise<Outcome> {
  const report = path.join(folder, 'report.json')
  const escaped = title.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)
  const args = ['run', file, '-t', escaped, '--retry=0', '--reporter=json', `--outputFile=${report}`]
  const said = await vitest(folder, args)
  const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as {
    testResults: { message: string; assertionResults: { status: string; title: string }[] }[]
  }
  rmSync(report)
  const tests = testResults.flatMap(({ assertionResults }) => assertionResults)
  const passed = tests.filter(({ status }) => status === 'passed').length
  const failed = tests.filter(({ status }) => status === 'failed').map((test) => test.title)
  // A server that did not start says nothing about the bug.
  if (passed + failed.length === 0)
    throw new Error(`${file}: no test '${title}' ran: ${testResults.map(({ message }) => message).join('')} ${said}`)
  return { passed, failed }
}

/** Ends with 1 where a test fails; what came out is in the report. */
function vitest(folder: string, args: readonly string[]): Promise<string> {
  const ours = Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST'))
  const options = { cwd: folder, env: Object.fromEntries(ours), maxBuffer: 100 * 1024 * 1024 }
  return new Promise((resolve) => {
    const command = [path.join(folder, 'node_modules/vitest/vitest.mjs'), ...args]
    execFile(process.execPath, command, options, (_error, stdout, stderr) => resolve(stdout + stderr))
  })
}

function told({ passed, failed }: Outcome): string {
  return `${passed} passed${failed.length === 0 ? '' : `, failed: ${failed.join('; ')}`}`
}
