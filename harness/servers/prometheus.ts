import { copyFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { program } from '../binaries.ts'
import { ServerHandle } from '../handle.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder } from '../temporary-folder.ts'

const askWithinMs = 5_000

export interface Sample {
  readonly metric: Record<string, string>
  readonly value: [number, string]
}

export class PrometheusServer extends ServerHandle {
  /** Asks the HTTP API, as in `call('query', { query })`. */
  async call<T>(what: string, parameters: Record<string, string> = {}): Promise<T> {
    const url = `${this.url}/api/v1/${what}?${new URLSearchParams(parameters).toString()}`
    const response = await fetch(url, { signal: AbortSignal.timeout(askWithinMs) })
    const answer = (await response.json()) as { status: string; data: T; error?: string }
    if (answer.status !== 'success')
      throw new Error(`Prometheus answers to ${JSON.stringify(parameters)}: ${answer.error}`)
    return answer.data
  }

  async query(query: string): Promise<readonly Sample[]> {
    return (await this.call<{ result: Sample[] }>('query', { query })).result
  }
}

export interface ScrapeOptions {
  /** Default /metrics. */
  readonly path?: string
  /** Sent as `Authorization: Bearer`, from a file. */
  readonly token?: string
}

/** Scrapes one target every second; with rules, evaluates them as often. */
export async function startPrometheus(
  target: string,
  ruleFiles: readonly string[] = [],
  { path: metricsPath = '/metrics', token }: ScrapeOptions = {},
): Promise<PrometheusServer> {
  return onFreePorts(1, async ([port = 0]) => {
    const folder = createFolder('prometheus')
    // Beside its configuration, where the server's user may read it.
    const rules = ruleFiles.map((from) => {
      const to = path.join(folder, path.basename(from))
      copyFileSync(from, to)
      return to
    })
    const credentials = path.join(folder, 'token')
    if (token !== undefined) writeFileSync(credentials, token)
    const authorization = token === undefined ? {} : { authorization: { credentials_file: credentials } }
    const config = {
      global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
      rule_files: rules,
      scrape_configs: [
        { job_name: 'service', metrics_path: metricsPath, ...authorization, static_configs: [{ targets: [target] }] },
      ],
    }
    const file = path.join(folder, 'prometheus.yml')
    // JSON is YAML.
    writeFileSync(file, JSON.stringify(config))
    const { path: prometheus, env } = program('prometheus')
    const url = `http://127.0.0.1:${port}`
    const server = await Server.start({
      name: `prometheus:${port}`,
      folder,
      command: {
        path: prometheus,
        args: [
          `--config.file=${file}`,
          `--storage.tsdb.path=${path.join(folder, 'data')}`,
          `--web.listen-address=127.0.0.1:${port}`,
          '--log.level=warn',
        ],
        env,
      },
      port,
      ready: async () => (await fetch(`${url}/-/ready`, { signal: AbortSignal.timeout(askWithinMs) })).ok,
    })
    return new PrometheusServer(server, { port, url }, () => {
      throw new Error('a Prometheus is not emptied')
    })
  })
}
