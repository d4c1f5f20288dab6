// Before the unit tests on another runtime: they run on it, and not on the Node that a child process may find.
import process from 'node:process'

const { bun, deno, node } = process.versions
const version = bun ?? deno ?? node
if (version !== process.env['RUNTIME_VERSION'])
  throw new Error(`expected the runtime ${process.env['RUNTIME_VERSION']}, got ${version}`)
