import { AsyncLocalStorage } from 'node:async_hooks'
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
 * The method runs while it holds the lock. The name is made from its arguments: `{id}` is the parameter `id`, `{order.id}` a
 * field of the parameter `order`. It rejects as `locks.using` does.
 */
export function Locked(template: string, options: WaitOptions = {}) {
  return <T extends (...args: never[]) => Promise<unknown>>(
    target: object,
    name: string,
    descriptor: TypedPropertyDescriptor<T>,
  ): void => {
    const method = descriptor.value as unknown as Method
    const nameOf = nameFrom(template, parametersOf(method), `@Locked on ${name}`)
    Inject(LOCKS)(target, INJECTED)
    const locked: Method = async function (...args) {
      return this[INJECTED].using(nameOf(args), options, (lease) => leases.run(lease, () => method.apply(this, args)))
    }
    descriptor.value = locked as unknown as T
  }
}

/** The names of simple parameters, as the compiled code has them. A minifier that changes them is noticed by `nameFrom`. */
function parametersOf(method: Method): string[] {
  const list = /^[^(]*\(([^)]*)\)/.exec(method.toString())?.[1] ?? ''
  return list.split(',').map((parameter) => parameter.replace(/=.*/s, '').trim())
}

/** Wrong templates throw when the class is defined, and wrong values when the method is called: never a wrong name. */
function nameFrom(template: string, parameters: readonly string[], where: string): (args: unknown[]) => string {
  const placeholder = /\{(\w+)((?:\.\w+)*)\}/g
  for (const [text, parameter = ''] of template.matchAll(placeholder)) {
    if (parameters.includes(parameter)) continue
    throw new TypeError(`${where}: expected one of its parameters (${parameters.join(', ')}), got ${text}`)
  }
  if (/[{}]/.test(template.replaceAll(placeholder, ''))) {
    throw new TypeError(`${where}: expected a name with {parameter} or {parameter.field}, got ${template}`)
  }
  return (args) =>
    template.replaceAll(placeholder, (text, parameter: string, fields: string) => {
      let value = args[parameters.indexOf(parameter)]
      for (const field of fields.split('.').slice(1)) value = (value as Record<string, unknown> | undefined)?.[field]
      if (['string', 'number', 'bigint'].includes(typeof value) && value !== '') return String(value)
      throw new TypeError(`${where}: expected a text or a number for ${text}, got ${JSON.stringify(value)}`)
    })
}
