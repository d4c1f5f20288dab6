// NestJS, a module and a decorator: compile it (tsconfig.json beside it), then REDIS_URL=redis://127.0.0.1:6379 node main.js
import 'reflect-metadata'
import { setTimeout as sleep } from 'node:timers/promises'
import { Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Redis } from 'ioredis'
import { redis } from 'ringfence/redis'
import { currentLease, Locked, lockName, LocksModule } from './locks-module.js'

const client = new Redis(process.env['REDIS_URL']!)

@Injectable()
class Orders {
  #atWork = 0

  @Locked('order:{id}', { ttl: '5s' })
  async charge(id: number, by: string): Promise<string> {
    const others = this.#atWork++
    await sleep(50)
    this.#atWork--
    return `${by}: order ${id}, ${others} others at work, holds ${currentLease().resources.join()}`
  }

  @Locked((order: { id?: number }) => lockName`order:${order.id}`, { wait: 0 })
  async cancel(order: { id?: number }): Promise<string> {
    return `cancelled ${order.id}`
  }

  @Locked('order:{id}')
  async refund(order: { id?: number }): Promise<string> {
    return `refunded ${order.id}, held ${currentLease().resources.join()}`
  }

  /** Until the application is told to end. */
  @Locked('import')
  async import(): Promise<void> {
    console.log('importing')
    await sleep(60_000, undefined, { signal: currentLease().signal }).catch(() => undefined)
    throw currentLease().signal.reason
  }
}

@Module({
  imports: [LocksModule.forRoot({ engine: () => redis(client), close: () => client.disconnect(), wait: '5s' })],
  providers: [Orders],
})
class App {}

async function main(): Promise<void> {
  const app = await NestFactory.createApplicationContext(App, { logger: ['error'] })
  app.enableShutdownHooks()
  const orders = app.get(Orders)

  const charged = await Promise.all([orders.charge(42, 'Ada'), orders.charge(42, 'Bob')])
  console.log(charged.sort().join('\n'))
  const [, refused] = await Promise.allSettled([
    orders.charge(7, 'Ada'),
    sleep(20).then(() => orders.cancel({ id: 7 })),
  ])
  console.log(refused.status === 'rejected' ? `refused: ${refused.reason.code}` : refused.value)
  await orders.cancel({}).catch((error: Error) => console.log(error.message))
  console.log(await orders.refund({ id: 8 }))
  await orders.refund({}).catch((error: Error) => console.log(error.message))
  await orders.import().catch((error: Error) => console.log(error.message))
}

void main()
