import { AsyncLocalStorage } from 'node:async_hooks'
import { inspect } from 'node:util'
import { Inject, Module, type DynamicModule, type OnApplicationShutdown } from '@nestjs/common'
import { createLocks, type Engine, type Lease, type Locks, type LocksOptions, type WaitOptions } from 'ringfence'

/** The token by which the locks are injected: `@Inject(LOCKS) locks: Locks`. */
export const LOCKS = Symbol('LOCKS')

export interface LocksModuleOptions extends LocksOptions {
  /** Makes the engine when the application starts. */
  engine: () => Engine
  /** Ends what the engine needed, after the locks are closed. */
  close?: () => void | Promise<void>
}

const CLOSE = Symbol('CLOSE')

@Module({})
export class LocksModule implements OnApplicationShutdown {
  constructor(
    @Inject(LOCKS) private readonly locks: Locks,
    @Inject(CLOSE) private readonly close: () => void | Promise<void>,
  ) {}

  static forRoot({ engine, close = () => undefined, ...options }: LocksModuleOptions): DynamicModule {
    const providers = [
      { provide: LOCKS, useFactory: () => createLocks(engine(), options) },
      { provide: CLOSE, useValue: close },
    ]
    return { module: LocksModule, global: true, providers, exports: [LOCKS] }
  }

  /** Ends all waits and gives back what is held. */
  async onApplicationShutdown(): Promise<void> {
    await this.locks.close()
    await this.close()
  }
}

const leases = new AsyncLocalStorage<Lease>()

/** The lease of the method with `@Locked` that runs now. */
export function currentLease(): Lease {
  const lease = leases.getStore()
  if (lease === undefined)
    throw new Error('currentLease: expected a call inside of a method with @Locked, got one outside')
  return lease
}

// The property of a class that has methods with `@Locked`; Nest puts the locks there.
const INJECTED = Symbol('locks of @Locked')

type Method = (this: { [INJECTED]: Locks }, ...args: unknown[]) => Promise<unknown>

/**
 * The method runs while it holds the lock, and rejects as `locks.using` does. The name is a text, in which `{id}` is the argument
 * of the parameter `id`, or else the property `id` of the first argument; or it is a function of the arguments, or of the first
 * of them. The compiler checks that a function fits.
 */
export function Locked<A extends unknown[] = never[]>(
  name: string | ((...args: A) => string),
  options: WaitOptions = {},
) {
  return <T extends (...args: [...A, ...never[]]) => Promise<unknown>>(
    target: object,
    _key: string,
    descriptor: TypedPropertyDescriptor<T>,
  ): void => {
    const method = descriptor.value as unknown as Method
    const nameOf = typeof name === 'string' ? filled(name, method) : (name as (...args: unknown[]) => string)
    Inject(LOCKS)(target, INJECTED)
    const locked: Method = async function (...args) {
      const work = (lease: Lease) => leases.run(lease, () => method.apply(this, args))
      return this[INJECTED].using(nameOf(...args), options, work)
    }
    descriptor.value = locked as unknown as T
  }
}

/** What makes the name of the arguments, for a text like `order:{id}`. */
function filled(text: string, method: Method): (...args: unknown[]) => string {
  const parts = text.split(/\{([\w$]+)\}/) // every other one is what a pair of braces has in it
  if (parts.some((part, index) => index % 2 === 0 && /[{}]/.test(part)))
    throw new TypeError(
      `@Locked('${text}'): expected braces around the name of a parameter only; for others write () => '…'`,
    )
  const parameters = parametersOf(method)
  return (...args) => {
    const [first] = args
    const valueOf = (key: string): unknown => {
      const place = parameters.indexOf(key)
      if (place !== -1) return args[place]
      return typeof first === 'object' && first !== null ? (first as Record<string, unknown>)[key] : undefined
    }
    return parts
      .map((part, index) => (index % 2 === 0 ? part : inName(valueOf(part), `@Locked('${text}'): {${part}}`)))
      .join('')
  }
}

/** The names as they are written, up to the first parameter that is more than a name. */
function parametersOf(method: Method): string[] {
  const [, list = ''] = /\(([^)]*)/.exec(String(method)) ?? []
  const names = list.split(',').map((each) => each.trim())
  const end = names.findIndex((name) => !/^[\w$]+$/.test(name))
  return end === -1 ? names : names.slice(0, end)
}

/** A name in which every value is a text or a number: there is no lock `order:undefined`. */
export function lockName(
  texts: TemplateStringsArray,
  ...values: (string | number | bigint | undefined | null)[]
): string {
  return String.raw({ raw: texts }, ...values.map((value, index) => inName(value, `lockName: after '${texts[index]}'`)))
}

function inName(value: unknown, where: string): string {
  const isFit = typeof value === 'string' ? value !== '' : typeof value === 'bigint' || Number.isFinite(value)
  if (isFit) return String(value)
  throw new TypeError(`${where}: expected a text or a number, got ${inspect(value, { depth: 0 })}`)
}
