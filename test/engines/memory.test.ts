import { describe, test } from 'vitest'
import { conformance } from '../../src/conformance.ts'
import { memory } from '../../src/engines/memory.ts'

describe('memory', () => {
  const engine = memory()
  for (const { name, run } of conformance({ engine: () => engine })) test(name, run)
})
