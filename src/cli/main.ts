#!/usr/bin/env node
import { parse, unknownCommand, type CommandLine } from './command-line.ts'
import { commandNamed } from './commands.ts'
import { EXIT, Failure, usage } from './exit-codes.ts'
import { messageOf, Output } from './output.ts'
import type { Call } from './session.ts'
import { readConfig } from './settings.ts'
import { Interrupted, signalCode, Signals } from './signals.ts'

type Verb = (call: Call) => Promise<number>

/** Each loaded when it is called: `run` must not wait for the others. */
const VERBS: Readonly<Record<string, () => Promise<Verb>>> = {
  run: async () => (await import('./run.ts')).run,
  elect: async () => (await import('./elect.ts')).elect,
  held: async () => (await import('./held.ts')).held,
  status: async () => (await import('./status.ts')).status,
  release: async () => (await import('./release.ts')).release,
  doctor: async () => (await import('./doctor.ts')).doctor,
  dashboard: async () => (await import('./dashboard.ts')).dashboard,
  init: async () => (await import('./init.ts')).init,
  advise: async () => (await import('./advise.ts')).advise,
  bench: async () => (await import('./bench.ts')).bench,
  completion: async () => (await import('./completion.ts')).completion,
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
  if (line.argv !== undefined && !command.synopsis[0]!.includes(' -- '))
    throw usage(`${name}: expected no --`, `ringfence ${name} --help shows its options`)
  return await call(line, await load())
}

async function call(line: CommandLine, verb: Verb): Promise<number> {
  const output = new Output({ json: line.options.has('json'), quiet: line.options.has('quiet') })
  const signals = new Signals()
  // Also of a callback, or of a stream that nobody reads any more: never with exit code 1, which may be the command's.
  process.on('uncaughtException', (error: NodeJS.ErrnoException) => {
    process.exit(error.code === 'EPIPE' ? signalCode('SIGPIPE') : told(error, output))
  })
  let exitCode: number
  try {
    exitCode = await verb({ line, output, signals, config: readConfig(line.options) })
  } catch (error) {
    // What failed after an interruption failed because of it.
    const { reason } = signals.interrupted as { reason: unknown }
    exitCode = reason instanceof Interrupted ? reason.exitCode : told(error, output)
  }
  if (exitCode === signalCode('SIGINT') && process.stderr.isTTY) {
    const { inForeground } = await import('./launch.ts')
    if (inForeground()) await signals.dieOfInterrupt()
  }
  return exitCode
}

/** Says what went wrong and what to do next; answers the exit code. */
function told(error: unknown, output: Output): number {
  const { exitCode, next } = classified(error)
  if (output.json) {
    output.object(
      { error: { exitCode, message: messageOf(error), ...(next === undefined ? {} : { next }) } },
      process.stderr,
    )
  } else {
    output.complain(
      exitCode === EXIT.failed && error instanceof Error && !(error instanceof Failure)
        ? (error.stack ?? error.message)
        : messageOf(error),
    )
    if (next !== undefined) process.stderr.write(`  next: ${next}\n`)
  }
  return exitCode
}

function classified(error: unknown): { exitCode: number; next: string | undefined } {
  if (error instanceof Failure) return error
  // The core's own words name the option, what was expected and what came.
  if (error instanceof RangeError || error instanceof TypeError) return { exitCode: EXIT.usage, next: undefined }
  return { exitCode: EXIT.failed, next: undefined }
}

process.exit(
  await main(process.argv.slice(2)).catch((error: unknown) => told(error, new Output({ json: false, quiet: false }))),
)
