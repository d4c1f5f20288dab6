import type { Finding } from '../../../engine.ts'
import { sentence, type Findings } from '../../shared/findings.ts'
import { replayOf, type Replay } from '../voters/replay.ts'
import type { CheckedServer, ServerReply } from './server.ts'

/** What a server says about itself, in one place. Undefined where it does not say. */
export class ServerFacts {
  readonly #info: ReadonlyMap<string, string> | undefined
  readonly #settings: ReadonlyMap<string, string>
  /** Why INFO or CONFIG GET gave nothing. */
  readonly infoRefused: string | undefined
  readonly configRefused: string | undefined

  readonly replay: Replay

  constructor(info: ServerReply, settings: readonly ServerReply[], replay: Replay = 'not told') {
    this.replay = replay
    const text = info.kind === 'reply' && typeof info.value === 'string' ? info.value : undefined
    this.#info = text === undefined ? undefined : parsed(text)
    this.infoRefused = text === undefined ? refusal(info) : undefined
    this.#settings = new Map(settings.flatMap(pairs))
    this.configRefused = this.#settings.size === 0 ? refusal(settings[0]) : undefined
  }

  info(name: string): string | undefined {
    return this.#info?.get(name)
  }

  number(name: string): number | undefined {
    const text = this.info(name)
    const number = Number(text)
    return text === undefined || text === '' || Number.isNaN(number) ? undefined : number
  }

  setting(name: string): string | undefined {
    return this.#settings.get(name)
  }

  get replicas(): readonly Replica[] {
    const count = this.number('connected_slaves') ?? 0
    return Array.from({ length: count }, (_, index) => replica(this.info(`slave${index}`) ?? ''))
  }
}

export async function factsOf(server: CheckedServer, prefix = ''): Promise<ServerFacts> {
  // One pattern a command: several came with Redis 7.
  const patterns = ['*append*', 'save', 'stop-writes-on-bgsave-error', 'min-replicas-*']
  const [info, ...settings] = await Promise.all([
    server.ask('INFO'),
    ...patterns.map((pattern) => server.ask('CONFIG', 'GET', pattern)),
  ])
  return new ServerFacts(info, settings, await replayOf((command) => server.run(command), prefix))
}

export interface Replica {
  readonly address: string
  readonly state: string
  readonly offset: number
  readonly lagSeconds: number
}

export function unknown(
  report: Findings,
  id: string,
  what: string,
  why: string | undefined,
  permission: string,
): Finding {
  return report.note(
    id,
    sentence(`Could not find out ${what}: ${why ?? 'the server does not say'}`),
    'This was not checked. Managed services often rename or disable the command; locks work without it.',
    `Allow the user ${permission}, or ask the operator of the server.`,
  )
}

function parsed(info: string): Map<string, string> {
  const lines = info.split(/\r?\n/).filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]))
}

function pairs(reply: ServerReply): [string, string][] {
  const list: readonly unknown[] = reply.kind === 'reply' && Array.isArray(reply.value) ? reply.value : []
  return list.flatMap((name, index) => (index % 2 === 0 ? [[String(name), String(list[index + 1])]] : []))
}

/** `ip=127.0.0.1,port=6380,state=online,offset=42,lag=0` */
function replica(line: string): Replica {
  const field = (name: string): string => new RegExp(`(?:^|,)${name}=([^,]*)`).exec(line)?.[1] ?? ''
  return {
    address: `${field('ip')}:${field('port')}`,
    state: field('state'),
    offset: Number(field('offset')),
    lagSeconds: Number(field('lag')),
  }
}

function refusal(reply: ServerReply | undefined): string | undefined {
  return reply?.kind === 'error' ? reply.message : undefined
}
