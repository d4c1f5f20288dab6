import { describe, test } from 'vitest'
import { conformance } from '../../src/conformance/index.ts'
import { memory } from '../../src/engines/memory.ts'
import { viewOf } from '../../harness/engine-view.ts'

describe('memory', () => {
  const engine = memory()
  const setup = { engine: () => viewOf(engine), methods: ['handOver', 'watch', 'probe'] as const, shared: true }
  for (const { name, run } of conformance(setup)) test(name, run)
})
