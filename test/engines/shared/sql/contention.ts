import { setTimeout as pause } from 'node:timers/promises'
import { expect } from 'vitest'
import type { Engine } from '../../../../src/engine.ts'
import type { LockEvent } from '../../../../src/events.ts'
import { createLocks } from '../../../../src/locks.ts'

const NAMES = ['a', 'b', 'c', 'd', 'e']
const PROCESSES = 6
const SECTIONS = 12

export interface Contention {
  readonly grants: number
  /** What went wrong on the engines, whoever noticed. */
  readonly failures: readonly string[]
}

/**
 * Many who want overlapping pairs and triples of the same few resources, in every order, while leases are renewed all the
 * time. Fails on two holders at once and on tokens that do not grow; prints its seed.
 */
export async function contend(engine: () => Engine): Promise<Contention> {
  const seed = Math.floor(Math.random() * 2 ** 31)
  console.log(`contention: seed ${seed}`)
  const random = generator(seed)
  const failures: string[] = []
  const observe = (event: LockEvent): void => {
    if (event.type === 'failed' || event.type === 'doubtful') failures.push(event.cause.message)
    if (event.type === 'lost') failures.push(`lost: ${event.reason}`)
  }
  const inside = new Map<string, string>()
  const tokens = new Map<string, bigint>()
  let grants = 0
  const processes = Array.from({ length: PROCESSES }, () => createLocks(engine(), { ttl: '20s', observe }))
  try {
    const sections = processes.flatMap((locks) =>
      Array.from({ length: SECTIONS }, async () => {
        const names = shuffled(NAMES, random).slice(0, 2 + Math.floor(random() * 2))
        await locks.using(names, { wait: '50s' }, async (lease) => {
          for (const name of names) {
            expect(inside.get(name), `two holders of ${name}`).toBeUndefined()
            inside.set(name, lease.owner)
            expect(lease.token).toBeGreaterThan(tokens.get(name) ?? 0n)
            tokens.set(name, lease.token)
          }
          // Renewals meet the attempts of the others on the same rows.
          for (let i = 0; i < 3; i++) await Promise.all([lease.extend(), pause(1)])
          for (const name of names) inside.delete(name)
          grants++
        })
      }),
    )
    await Promise.all(sections)
  } finally {
    for (const locks of processes) await locks.close()
  }
  return { grants, failures }
}

export const GRANTS = PROCESSES * SECTIONS

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, order: random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ item }) => item)
}

/** The same numbers for the same seed. */
function generator(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return state / 2 ** 31
  }
}
