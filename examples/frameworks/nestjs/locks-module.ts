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
 * The method runs while it holds the lock, and rejects as `locks.using` does. The name is a text, or a function of the
 * method's arguments, or of the first of them. The compiler checks that they fit.
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
    const nameOf = typeof name === 'string' ? () => name : (name as (...args: unknown[]) => string)
    Inject(LOCKS)(target, INJECTED)
    const locked: Method = async function (...args) {
      const work = (lease: Lease) => leases.run(lease, () => method.apply(this, args))
      return this[INJECTED].using(nameOf(...args), options, work)
    }
    descriptor.value = locked as unknown as T
  }
}

/** A name in which every value is a text or a number: there is no lock `order:undefined`. */
export function lockName(
  texts: TemplateStringsArray,
  ...values: (string | number | bigint | undefined | null)[]
): string {
  for (const [index, value] of values.entries()) {
    if (['string', 'number', 'bigint'].includes(typeof value) && value !== '') continue
    throw new TypeError(`lockName: expected a text or a number after '${texts[index]}', got ${JSON.stringify(value)}`)
  }
  return String.raw({ raw: texts }, ...values)
}
