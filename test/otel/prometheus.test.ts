import { readFileSync } from 'node:fs'
import path from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { program } from '../../harness/binaries.ts'
import { onFreePorts } from '../../harness/ports.ts'
import { runTool, Server } from '../../harness/process.ts'
import { startPrometheus, type PrometheusServer } from '../../harness/servers/prometheus.ts'
import { startRedisNodes } from '../../harness/servers/redis.ts'
import { createFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'

const ROOT = path.resolve(import.meta.dirname, '../..')
const ALERTS = path.join(ROOT, 'docs/observability/alerts.yml')
const TRIALS = path.join(ROOT, 'test/otel/alert-trials.yml')

interface Panel {
  readonly id: number
  readonly title: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly targets?: readonly { readonly expr: string }[]
}

const dashboard = JSON.parse(readFileSync(path.join(ROOT, 'docs/observability/dashboard.json'), 'utf8')) as {
  panels: Panel[]
  templating: { list: { name: string; query: string }[] }
}
const questions = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => [title, expr] as const),
)

/** As Grafana would ask it. */
function filledIn(expr: string): string {
  return expr
    .replaceAll('$job', '.*')
    .replaceAll('$engine', '.*')
    .replaceAll(/\$__(rate_interval|range)/g, '1m')
}

/** The metrics that an expression names, in full or by a pattern. */
function named(expr: string): string[] {
  const patterns = [...expr.matchAll(/__name__=~"([^"]+)"/g)].map((match) => match[1]!)
  const names = [...expr.replaceAll(/"[^"]*"/g, '').matchAll(/\bringfence_\w+(?=[{[\s)]|$)/g)].map((match) => match[0])
  const labels = /^ringfence_(engine|outcome|reason|node|guard|operation|resource)$/
  return [...patterns, ...names.filter((name) => !labels.test(name))]
}

const promtool = (...args: string[]): Promise<string> => {
  const { path: tool, env } = program('promtool')
  return runTool({ path: tool, args, env })
}

describe('the alerts', () => {
  test('are valid rules', async () => {
    expect(await promtool('check', 'rules', ALERTS)).toContain('SUCCESS')
  })

  test('fire when they should and at no other time', async () => {
    expect(await promtool('test', 'rules', TRIALS)).toContain('SUCCESS')
  })

  test('are each tried both ways', () => {
    const names = [...readFileSync(ALERTS, 'utf8').matchAll(/- alert: (\w+)/g)].map((match) => match[1]!)
    const trials = readFileSync(TRIALS, 'utf8')
    expect(names.length).toBeGreaterThan(8)
    // The first trial has all series and no alert at all, the second has every alert.
    const [, well, ill] = trials.split('- name: ')
    expect(well).toContain('exp_samples: []')
    for (const name of names) expect(ill).toContain(`alertname="${name}"`)
  })
})

describe('the dashboard', () => {
  test('has panels of their own number and place', () => {
    const { panels } = dashboard
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)}:${y + Math.floor(cell / w)}`),
    )
    expect(new Set(cells).size).toBe(cells.length)
    expect(questions.length).toBeGreaterThan(20)
  })

  test('asks with no variable that it does not have', () => {
    const known = ['datasource', 'job', 'engine', '__rate_interval', '__range']
    const used = questions.flatMap(([, expr]) => [...expr.matchAll(/\$\{?(\w+)/g)].map((match) => match[1]!))
    expect(used.filter((name) => !known.includes(name))).toEqual([])
    expect(dashboard.templating.list.map(({ name }) => name)).toEqual(['datasource', 'job', 'engine'])
  })
})

describe('on a Prometheus that scrapes the example service', () => {
  let nodes: Awaited<ReturnType<typeof startRedisNodes>>
  let service: Server
  let prometheus: PrometheusServer

  beforeAll(async () => {
    nodes = await startRedisNodes(3, { args: ['--maxmemory', '500mb'] })
    const port = await onFreePorts(1, async ([port = 0]) => {
      const url = `http://127.0.0.1:${port}/metrics`
      service = await Server.start({
        name: `service:${port}`,
        folder: createFolder('service'),
        command: {
          path: process.execPath,
          args: [path.join(ROOT, 'examples/observed-service.mjs')],
          env: { REDIS_URLS: nodes.urls.join(','), METRICS_PORT: String(port), NODE_OPTIONS: '' },
          cwd: ROOT,
        },
        port,
        ready: async () => (await (await fetch(url)).text()).includes('ringfence_leases'),
      })
      return port
    })
    prometheus = await startPrometheus(`127.0.0.1:${port}`, [ALERTS])
    // So that attempts fail as well: a majority is away for a moment.
    const [, second, third] = nodes.nodes
    await until(() => exists('ringfence_leases'), { what: 'the service was scraped', withinMs: 20_000 })
    await second!.freeze()
    await third!.freeze()
    await until(() => exists('ringfence_attempt_failures_total'), { what: 'attempts have failed', withinMs: 30_000 })
    await second!.thaw()
    await third!.thaw()
  }, 120_000)

  afterAll(async () => {
    await prometheus?.stop()
    await service?.stop()
    await nodes?.stop()
  })

  const exists = async (name: string): Promise<boolean> => (await prometheus.query(`{__name__=~"${name}"}`)).length > 0

  test.each(questions)('%s has an answer: %s', async (_title, expr) => {
    for (const name of named(expr)) {
      await until(() => exists(name), { what: `there is a metric ${name}`, withinMs: 30_000, everyMs: 200 })
    }
    expect(named(expr)).not.toEqual([])
    await until(async () => (await prometheus.query(filledIn(expr))).length > 0, {
      what: 'the panel has something to show',
      withinMs: 30_000,
      everyMs: 200,
    })
  })

  test('every alert is about metrics that exist, and is evaluated without an error', async () => {
    interface Rule {
      readonly query: string
      readonly health: string
    }
    const rules = await until(
      async () => {
        const { groups } = await prometheus.call<{ groups: { rules: Rule[] }[] }>('rules')
        const all = groups.flatMap((group) => group.rules)
        return all.length > 0 && all.every(({ health }) => health !== 'unknown') ? all : undefined
      },
      { what: 'all rules were evaluated' },
    )
    expect(rules.length).toBeGreaterThan(8)
    expect(rules.filter(({ health }) => health !== 'ok')).toEqual([])
    const metrics = rules.flatMap(({ query }) => named(query))
    expect(rules.filter(({ query }) => named(query).length === 0)).toEqual([])
    const missing = await Promise.all(metrics.map(async (name) => ((await exists(name)) ? [] : [name])))
    expect(missing.flat()).toEqual([])
  })

  test('a lost lease and a refused write of its former holder are alerts at once', async () => {
    interface Alerts {
      readonly alerts: { readonly state: string; readonly labels: Record<string, string> }[]
    }
    const rejection = {
      alertname: 'RingfenceFencingRejection',
      severity: 'critical',
      job: 'service',
      ringfence_guard: 'redis',
      ringfence_reason: 'stale',
    }
    const loss = {
      alertname: 'RingfenceLeaseLost',
      severity: 'warning',
      job: 'service',
      ringfence_engine: 'redlock',
      ringfence_reason: 'expired',
    }
    await until(
      async () => {
        const { alerts } = await prometheus.call<Alerts>('alerts')
        const firing = alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels)
        return [rejection, loss].every((wanted) => firing.some((labels) => isDeepStrictEqual(labels, wanted)))
      },
      { what: 'both alerts fire', withinMs: 30_000 },
    )
  })

  test('no resource name is a label, only its class', async () => {
    const kinds = await prometheus.call<string[]>('label/ringfence_resource/values')
    expect([...kinds].sort()).toEqual(['order', 'report', 'stock'])
  })
})
