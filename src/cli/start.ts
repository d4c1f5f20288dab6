import { parse, unknownCommand, type CommandLine } from './command-line.ts'
import { commandNamed } from './command-list.ts'
import { Config, readConfig } from './config.ts'
import { EXIT, Failure, usage } from './exit-codes.ts'
import { messageOf, Output } from './output.ts'
import type { Call } from './session.ts'
import { explain } from './settings.ts'
import { Interrupted, signalCode, Signals } from './signals.ts'

type Verb = (call: Call) => Promise<number>

/** Each loaded when it is called: `run` must not wait for the others. */
const VERBS: Readonly<Record<string, () => Promise<Verb>>> = {
  run: async () => (await import('./commands/run.ts')).run,
  elect: async () => (await import('./commands/elect.ts')).elect,
  held: async () => (await import('./commands/held.ts')).held,
  status: async () => (await import('./commands/status.ts')).status,
  runs: async () => (await import('./commands/runs.ts')).runs,
  release: async () => (await import('./commands/release.ts')).release,
  doctor: async () => (await import('./commands/doctor.ts')).doctor,
  dashboard: async () => (await import('./commands/dashboard.ts')).dashboard,
  lab: async () => (await import('./commands/lab.ts')).lab,
  init: async () => (await import('./commands/init.ts')).init,
  advise: async () => (await import('./commands/advise.ts')).advise,
  migrate: async () => (await import('./commands/migrate.ts')).migrate,
  bench: async () => (await import('./commands/bench.ts')).bench,
  completion: async () => (await import('./commands/completion.ts')).completion,
}

async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args
  if (name === '--version' || name === '-V') return (await import('./help.ts')).version()
  if (name === undefined || name === '--help' || name === '-h' || name === 'help')
    return (await import('./help.ts')).help(rest[0], name === undefined ? process.stderr : process.stdout)
  const command = commandNamed(name)
  const load = VERBS[name]
  if (command === undefined || load === undefined)
    throw usage(unknownCommand(name), 'ringfence --help lists the commands')
  const line = parse(command, rest)
  if (line.options.has('help')) return (await import('./help.ts')).help(name, process.stdout)
  if (line.argv !== undefined && !command.synopsis.includes(' -- '))
    throw usage(`${name}: expected no --`, `ringfence ${name} --help shows its options`)
  if (line.names.length > 0 && NAMELESS.test(command.synopsis)) {
    const engine = takes(line, 'engine') ? '; an engine is given by --engine URL' : ''
    throw usage(
      `${name}: expected no names, got '${line.names.join(' ')}'${engine}`,
      `ringfence ${name} --help shows its options`,
    )
  }
  return await call(line, await load())
}

/** The synopsis of a command that takes options alone. */
const NAMELESS = /^ringfence \S+( \[options\])?$/

function takes({ command }: CommandLine, option: string): boolean {
  return command.options.some(({ name }) => name === option)
}

async function call(line: CommandLine, verb: Verb): Promise<number> {
  const [json, quiet, verbose] = ['json', 'quiet', 'verbose'].map((name) => line.options.has(name))
  const output = new Output({ json: json!, quiet: quiet!, verbose: verbose! })
  const signals = new Signals()
  // Also of a callback, or of a stream that nobody reads any more: never with exit code 1, which may be the command's.
  process.on('uncaughtException', (error: NodeJS.ErrnoException) => {
    process.exit(error.code === 'EPIPE' ? signalCode('SIGPIPE') : report(error, output, line))
  })
  let exitCode: number
  try {
    const config = takes(line, 'config') ? readConfig(line.options, output) : new Config()
    if (line.options.has('verbose')) explain(line.options, config, output)
    exitCode = await verb({ line, output, signals, config })
  } catch (error) {
    // What failed after an interruption failed because of it.
    const { reason } = signals.interrupted as { reason: unknown }
    exitCode = reason instanceof Interrupted ? reason.exitCode : report(error, output, line)
  }
  if (exitCode === signalCode('SIGINT') && process.stderr.isTTY)
    await (await import('./interrupt.ts')).dieIfInForeground(signals)
  return exitCode
}

/** Says what went wrong and what to do next. Returns the exit code. */
function report(error: unknown, output: Output, line?: CommandLine): number {
  const help = line && `ringfence ${line.command.name} --help shows its options`
  const { exitCode, next = exitCode === EXIT.usage ? help : undefined } = classified(error)
  if (output.json) {
    output.object({ error: { exitCode, message: messageOf(error), next } }, process.stderr)
  } else {
    output.complain(messageOf(error))
    // A bug of ours: a report needs the place.
    if (exitCode === EXIT.failed && error instanceof Error && !(error instanceof Failure))
      for (const frame of error.stack?.split('\n').filter((line) => line.startsWith('    at ')) ?? [])
        output.complain(frame)
    if (next !== undefined) output.advise(next)
  }
  return exitCode
}

function classified(error: unknown): { exitCode: number; next: string | undefined } {
  if (error instanceof Failure) return error
  // The core's own words name the option, what was expected and what came.
  if (error instanceof RangeError || error instanceof TypeError) return { exitCode: EXIT.usage, next: undefined }
  return { exitCode: EXIT.failed, next: undefined }
}

/** A result that could not be written, on a full disk, is no success. The stdout of run and elect is the command's. */
function unwritten(error: NodeJS.ErrnoException): never {
  if (error.code === 'EPIPE') process.exit(signalCode('SIGPIPE'))
  process.exit(report(new Failure(EXIT.failed, `stdout cannot be written to: ${error.message}`), plain))
}

const plain = new Output({ json: false, quiet: false })

/** Runs the command and ends the process. */
export async function start(): Promise<never> {
  // Should Node ever run out of things to do before we are done, that is no success.
  process.exitCode = EXIT.failed
  const speaks = !['run', 'elect'].includes(process.argv[2] ?? '')
  if (speaks) process.stdout.on('error', unwritten)
  const exitCode = await main(process.argv.slice(2)).catch((error: unknown) => report(error, plain))
  // A failure was reported on stderr.
  if (speaks && (exitCode === EXIT.ok || exitCode === EXIT.no))
    await new Promise<void>(
      (resolve) => void process.stdout.write('', (error) => (error ? unwritten(error) : resolve())),
    )
  process.exit(exitCode)
}
