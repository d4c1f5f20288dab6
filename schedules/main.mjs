// The servers of the tests are TypeScript, which Node 20 does not run by itself.
import { runnerImport } from 'vite'

await runnerImport(new URL('./main.ts', import.meta.url).pathname, {
  configFile: false,
  // Node 20 does not know `await using`.
  oxc: { target: 'es2022' },
})
process.exit()
