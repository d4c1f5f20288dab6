// Runs in a network namespace of its own, which a process must be born into: see partition.test.ts.
import { runnerImport } from 'vite'

await runnerImport(new URL('./partition-run.ts', import.meta.url).pathname, {
  configFile: false,
  oxc: { target: 'es2022' },
})
process.exit()
