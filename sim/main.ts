import { failed } from './checkers/all.ts'
import { drawPlan } from './plan.ts'
import { run } from './run.ts'
Error.stackTraceLimit = 0
const from = Number(process.argv[2] ?? 1),
  n = Number(process.argv[3] ?? 10)
const began = performance.now()
let bad = 0,
  events = 0,
  leases = 0
const unknown = new Map<string, number>()
for (let seed = from; seed < from + n; seed++) {
  const { world, verdicts } = await run(drawPlan(seed))
  events += world.history.events.length
  leases += world.history.of('holds').length
  for (const v of verdicts) if (v.verdict === 'unknown') unknown.set(v.checker, (unknown.get(v.checker) ?? 0) + 1)
  const wrong = failed(verdicts)
  if (wrong.length > 0) {
    bad++
    if (bad < 25) console.log(seed, wrong.map((w) => `${w.checker}: ${w.why} at ${w.at.toFixed(0)}`).join(' | '))
  }
}
console.log({ n, bad, events, leases, unknown, ms: performance.now() - began })
