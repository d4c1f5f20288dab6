import type { Diagnosis, Patient, Reply } from './patient.ts'

/** What a server says about itself, in one place. Undefined wherever it does not say. */
export class Facts {
  readonly #info: ReadonlyMap<string, string> | undefined
  readonly #settings: ReadonlyMap<string, string>
  /** Why INFO or CONFIG GET told nothing. */
  readonly infoRefused: string | undefined
  readonly configRefused: string | undefined

  constructor(info: Reply, settings: readonly Reply[]) {
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

export async function factsOf(patient: Patient): Promise<Facts> {
  // One pattern a command: several came with Redis 7.
  const patterns = ['*append*', 'save', 'stop-writes-on-bgsave-error', 'min-replicas-*']
  const [info, ...settings] = await Promise.all([
    patient.ask('INFO'),
    ...patterns.map((pattern) => patient.ask('CONFIG', 'GET', pattern)),
  ])
  return new Facts(info, settings)
}

export interface Replica {
  readonly address: string
  readonly state: string
  readonly offset: number
  readonly lagSeconds: number
}

export function unknown(id: string, what: string, why: string | undefined, permission: string): Diagnosis {
  return {
    id,
    severity: 'note',
    found: `could not find out ${what}: ${why ?? 'the server does not say'}`,
    meaning: 'This was not checked. Managed services often rename or disable the command; locks work without it.',
    remedy: `Allow the user ${permission}, or look it up with whoever runs the server.`,
  }
}

function parsed(info: string): Map<string, string> {
  const lines = info.split(/\r?\n/).filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]))
}

function pairs(reply: Reply): [string, string][] {
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

function refusal(reply: Reply | undefined): string | undefined {
  return reply?.kind === 'error' ? reply.message : undefined
}
