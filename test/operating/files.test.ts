import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'

const run = promisify(execFile)
const ROOT = path.resolve(import.meta.dirname, '../..')
const PAGES = path.join(ROOT, 'docs/operating')
const read = (name: string): string => readFileSync(path.join(PAGES, name), 'utf8')

/** What the compiler says about values that are given a type. */
async function compile(name: string, source: string): Promise<string> {
  // Below the project, so that its packages are found.
  const folder = path.join(ROOT, 'node_modules/.cache', `operating-${name}-${process.pid}`)
  mkdirSync(folder, { recursive: true })
  const file = path.join(folder, `${name}.ts`)
  writeFileSync(file, source)
  const options = [
    '--ignoreConfig',
    '--noEmit',
    '--strict',
    '--skipLibCheck',
    '--module',
    'nodenext',
    '--types',
    'node',
  ]
  try {
    await run(path.join(ROOT, 'node_modules/.bin/tsc'), [...options, file], { cwd: folder })
    return ''
  } catch (error) {
    return (error as { stdout: string }).stdout
  } finally {
    removeFolder(folder)
  }
}

test('the manifests are what Kubernetes calls a CronJob and a Deployment', async () => {
  const documents = parseAllDocuments(read('kubernetes.yaml'))
  expect(documents.flatMap(({ errors }) => errors)).toEqual([])
  const [cronJob, deployment] = documents.map((document) => JSON.stringify(document.toJS()))
  const types = `import type { CronJob } from 'kubernetes-types/batch/v1.d.ts'
    import type { Deployment } from 'kubernetes-types/apps/v1.d.ts'\n`
  expect(
    await compile(
      'manifests',
      `${types}export const a: CronJob = ${cronJob}\nexport const b: Deployment = ${deployment}`,
    ),
  ).toBe('')
  const wrong = cronJob!.replace('readOnlyRootFilesystem', 'readOnlyRoot')
  expect(await compile('wrong', `${types}export const a: CronJob = ${wrong}`)).toContain('readOnlyRoot')
})

test('the Grafana dashboard is what its schema calls a dashboard', async () => {
  const json = readFileSync(path.join(ROOT, 'docs/observability/dashboard.json'), 'utf8')
  const types = `import type { Dashboard, Panel, RowPanel } from '@grafana/schema'
    // JSON has the words of an enumeration, not its names.
    type Plain<T> = T extends string ? \`\${T}\` : T extends object ? { [Key in keyof T]: Plain<T[Key]> } : T
    type Full = Plain<Omit<Dashboard, 'panels'> & { panels: (Panel | RowPanel)[] }>\n`
  expect(await compile('dashboard', `${types}export const a: Full = ${json}`)).toBe('')
  expect(
    await compile('wrong-dashboard', `${types}export const a: Full = ${json.replace('"gridPos"', '"grid"')}`),
  ).toContain('grid')
})

const hasSystemd = existsSync('/usr/bin/systemd-analyze')

test.runIf(hasSystemd)('systemd accepts the units', async () => {
  const folder = createFolder('units')
  try {
    const units = ['ringfence-tick.service', 'ringfence-tick.timer', 'ringfence-leader.service'].map((name) => {
      const file = path.join(folder, name)
      // The programs are not on this machine.
      writeFileSync(file, read(name).replaceAll(/\/usr\/local\/bin\/(ringfence|tick|scheduler)/g, '/bin/true'))
      return file
    })
    const { stderr } = await run('systemd-analyze', ['verify', '--man=no', ...units])
    expect(stderr.split('\n').filter((line) => line.includes(folder) || /ringfence-/.test(line))).toEqual([])
    writeFileSync(units[0]!, 'SuccessExitStatus=198\n[Service]\nExecStrat=/bin/true\n')
    await expect(run('systemd-analyze', ['verify', '--man=no', units[0]!])).rejects.toThrow(/ringfence-tick/)
  } finally {
    removeFolder(folder)
  }
})

test('the files that a page shows are the files beside it', () => {
  const page = read('running.md') + read('deploying.md')
  for (const [, name = '', shown] of page.matchAll(/<!-- (\S+) -->\n```\w*\n([\s\S]*?)```/g))
    expect(shown).toBe(read(name))
  expect([...page.matchAll(/<!-- \S+ -->/g)].length).toBe(7)
})

test('every alert names a heading that exists, and every heading an alert', () => {
  const rules = parse(readFileSync(path.join(ROOT, 'docs/observability/alerts.yml'), 'utf8')) as {
    groups: { rules: { alert: string; annotations: { runbook?: string } }[] }[]
  }
  const alerts = rules.groups.flatMap((group) => group.rules)
  expect(alerts.length).toBeGreaterThan(8)
  for (const { alert, annotations } of alerts)
    expect(annotations.runbook).toBe(`docs/operating/alerts.md#${alert.toLowerCase()}`)
  const headings = [...read('alerts.md').matchAll(/^## (\w+)$/gm)].map((match) => match[1]!)
  expect(headings.toSorted()).toEqual(alerts.map(({ alert }) => alert).toSorted())
})
