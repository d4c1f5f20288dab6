import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect } from 'vitest'
import type { Duration } from '../../src/duration.ts'
import type { Engine, Finding } from '../../src/engine.ts'
import { program } from '../../harness/binaries.ts'
import { runTool } from '../../harness/process.ts'
import { until } from '../../harness/until.ts'
import { createLocks, type LocksOptions, type RunStore } from '../../src/index.ts'

const PAGE = readFileSync(new URL('../../docs/operating/databases.md', import.meta.url), 'utf8')

/** The lines that make the users of an engine, as the page has them. */
export function pageLines(name: string): string {
  const lines = PAGE.split(`<!-- ${name} -->\n`)[1]?.match(/^```\w*\n([\s\S]*?)```/)?.[1]
  if (lines === undefined) throw new Error(`docs/operating/databases.md has no lines ${name}`)
  return lines
}

/** Runs lines for the shell, in which `tool` is a command. Returns what they print. */
export async function runLines(lines: string, tool: string, env: Record<string, string>): Promise<string> {
  const found = program(tool)
  const PATH = `${path.dirname(found.path)}:${process.env['PATH']}`
  return runTool({ path: '/bin/sh', args: ['-ec', lines], env: { ...found.env, ...env, PATH } })
}

/**
 * What programs do with leases, between two engines of one user: they hold, renew, wait, let the next one in, share and look.
 * Then the doctor, of whom only what is not as it is for `admin` is returned: what this user may not do, or may not see. Closes the engines.
 */
export async function exercised(
  connect: () => Engine,
  admin: Engine,
  { ttl = '10s', shared = true }: { ttl?: Duration; shared?: boolean } = {},
): Promise<string[]> {
  const options: LocksOptions = { ttl, wait: '20s' }
  const seen: string[] = []
  const one = createLocks(connect(), options)
  const two = createLocks(connect(), { ...options, observe: ({ type }) => void seen.push(type) })
  const others = createLocks(admin, options)
  try {
    const first = await one.acquire(['order:42', 'order:43'])
    await first.extend()
    expect((await two.status('order:42'))?.holders).toMatchObject([{ owner: first.owner }])
    const next = two.acquire('order:42')
    await until(() => seen.includes('waiting'), { what: 'it waits' })
    expect(await first.release()).toBe(true)
    const second = await next
    expect(second.token).toBeGreaterThan(first.token)
    expect(await second.release()).toBe(true)
    if (shared) {
      const readers = await Promise.all([one, two].map((locks) => locks.acquire('report', { shared: true })))
      for (const reader of readers) expect(await reader.release()).toBe(true)
    }
    await one.once('tick', { atLeast: '1s' }, () => undefined)
    await others.acquire('other').then((lease) => lease.release())
    return beyond(await others.check(), await one.check())
  } finally {
    await Promise.all([one.close(), two.close(), others.close()])
  }
}

/** What a store of runs is for: a run, from its beginning to its end. */
export async function recorded(store: RunStore): Promise<void> {
  const run = { job: 'nightly', owner: 'a@x', token: 1n, engine: 'redis:', outcome: 'done', tookMs: 1 } as const
  await store.recordRun({ ...run, outcome: 'began', tookMs: 0 })
  await store.recordRun(run)
  expect(await store.runs('nightly', { limit: 1 })).toMatchObject([{ owner: 'a@x', outcome: 'done' }])
}

function beyond(known: readonly Finding[], seen: readonly Finding[]): string[] {
  const shown = known.map(short)
  return seen.map(short).filter((text) => !shown.includes(text))
}

function short({ severity, id }: Finding): string {
  return `${severity} ${id}`
}
