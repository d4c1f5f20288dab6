import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Worker } from '../../harness/child.ts'
import { until } from '../../harness/until.ts'
import { startBank, type Bank } from './bank.ts'
import { isType, type Message } from './setup.ts'

/** 200 in the test run; `SECTIONS=2000 npx vitest run test/process/guards.test.ts` for a long one. */
const SECTIONS = Number(process.env['SECTIONS'] ?? 200)
const PROCESSES = 8
const TTL_MS = 200
/** Each process asks to be stopped in every so manieth section; one is stopped at a time. */
const STOP_EVERY = 25
/** The second and third forms of a store do with fewer in the test run. */
const FEWER = SECTIONS > 200 ? SECTIONS : 80
const WITHIN_MS = 60_000 + SECTIONS * 300

/** The forms of each store, and how many sections each is tried with. */
const FORMS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  postgres: { transaction: SECTIONS, inside: FEWER, column: FEWER },
  mariadb: { transaction: SECTIONS, inside: FEWER },
  mongodb: { transaction: SECTIONS, inside: FEWER, documents: FEWER },
  redis: { script: SECTIONS },
  http: { requests: SECTIONS },
  objects: { object: SECTIONS },
  file: { replace: SECTIONS },
}
/** They wait for leases to end most of the time. Two take about as long as each other, one after the other in each. */
const SIDE_BY_SIDE = [
  ['mongodb', 'redis', 'objects'],
  ['postgres', 'mariadb', 'http', 'file'],
]

let bank: Bank

beforeAll(async () => {
  bank = await startBank(SIDE_BY_SIDE.length * PROCESSES)
}, 120_000)

afterAll(async () => {
  await bank?.[Symbol.asyncDispose]()
})

test('every store is tried', () => {
  expect(SIDE_BY_SIDE.flat().toSorted()).toEqual(Object.keys(FORMS).toSorted())
})

describe.concurrent.each(SIDE_BY_SIDE.map((stores, index) => [stores.join(', '), stores, index] as const))(
  '%s',
  (_names, stores, index) => {
    const own = (): readonly Worker<Message>[] => bank.workers.slice(index * PROCESSES, (index + 1) * PROCESSES)
    for (const store of stores) {
      for (const [form, sections] of Object.entries(FORMS[store]!)) testGuarded(store, form, sections, own)
      testUnguarded(store, own)
    }
  },
)

function testGuarded(store: string, form: string, sections: number, own: () => readonly Worker<Message>[]): void {
  const claim =
    'with the guard no increment of eight processes is lost and no stale write lands, however they are stopped'
  test.sequential(`${store}, ${form}: ${claim}`, { timeout: WITHIN_MS }, async () => {
    const { written, balance, landed, disorder, stops, refused, ended } = await increments(store, form, sections, own())
    console.log(
      `${store}, ${form}: ${written} sections, ${stops} stops past the ttl: ${refused} stale writes refused, ` +
        `${ended} transactions ended by the store, ${landed} landed, ${written - balance} updates lost`,
    )
    expect(balance).toBe(written)
    expect(written).toBe(sections)
    expect([landed, disorder]).toEqual([0, 0])
    // The nemesis has been there.
    expect(stops).toBeGreaterThanOrEqual(sections / 100)
    expect(refused + ended).toBeGreaterThanOrEqual(stops)
  })
}

function testUnguarded(store: string, own: () => readonly Worker<Message>[]): void {
  test.sequential(`${store}: the same without the guard loses updates`, { timeout: WITHIN_MS }, async () => {
    const { written, balance, landed, stops } = await increments(store, 'unguarded', SECTIONS, own())
    console.log(
      `${store}, unguarded: ${written} sections, ${stops} stops past the ttl: ${landed} stale writes landed, ` +
        `${written - balance} updates lost`,
    )
    expect(written).toBe(SECTIONS)
    expect(stops).toBeGreaterThanOrEqual(SECTIONS / 100)
    expect(landed).toBe(stops)
    expect(balance).toBeLessThan(written)
  })
}

interface Figures {
  readonly written: number
  readonly refused: number
  readonly ended: number
  readonly balance: number
  /** Writes of a stopped process that the store took after a newer holder's. */
  readonly landed: number
  /** Tokens that the store has noted after a greater one. */
  readonly disorder: number
  /** How often a process was stopped until a newer holder had written. */
  readonly stops: number
}

let accounts = 0

async function increments(
  store: string,
  form: string,
  sections: number,
  workers: readonly Worker<Message>[],
): Promise<Figures> {
  const account = `account-${++accounts}`
  const [first] = workers as [Worker<Message>]
  await ask(first, { type: 'create', store, account }, 'created')
  for (const worker of workers) await ask(worker, { type: 'connect', store }, 'connected')
  const task = {
    type: 'run',
    store,
    form,
    account,
    sections: sections / PROCESSES,
    stopEvery: Math.min(STOP_EVERY, sections / PROCESSES),
    ttlMs: TTL_MS,
  }
  const nemesis = new Nemesis()
  const counts = await Promise.all(workers.map((worker) => nemesis.follow(worker, task)))
  const { balance, tokens } = await ask(first, { type: 'result', store, account }, 'result')
  const order = (tokens as string[]).map(BigInt)
  return {
    written: sum(counts, 'written'),
    refused: sum(counts, 'refused'),
    ended: sum(counts, 'ended'),
    balance: Number(balance),
    landed: nemesis.landed,
    disorder: order.filter((token, index) => order.slice(0, index).some((before) => before > token)).length,
    stops: nemesis.stops,
  }
}

/** Stops a process between its read and its write, until a newer holder has written. */
class Nemesis {
  stops = 0
  landed = 0
  #isBusy = false
  #working = PROCESSES
  #newest = 0n

  async follow(worker: Worker<Message>, task: object): Promise<Message> {
    worker.send(task)
    let isStale = false
    for (;;) {
      const message = await worker.next(undefined, { withinMs: WITHIN_MS, what: 'end of its sections' })
      const token = BigInt((message['token'] as string | undefined) ?? 0)
      if (message.type === 'between') isStale = await this.#meet(worker, token)
      if (message.type === 'written' && token > this.#newest) this.#newest = token
      if (message.type === 'written' && isStale) this.landed++
      if (message.type === 'written' || message.type === 'refused') isStale = false
      if (message.type !== 'done') continue
      this.#working--
      return message
    }
  }

  /** True if it is stale when it goes on. */
  async #meet(worker: Worker<Message>, token: bigint): Promise<boolean> {
    const go = { type: 'go' }
    if (this.#isBusy) {
      worker.send(go)
      return false
    }
    this.#isBusy = true
    await worker.pause()
    // Lies in its pipe until it goes on.
    worker.send(go)
    const isOver = (): boolean => this.#newest > token || this.#working === 1
    await until(isOver, { what: 'a newer holder has written', withinMs: 30_000, everyMs: 2 })
    const isStale = this.#newest > token
    if (isStale) this.stops++
    await worker.resume()
    this.#isBusy = false
    return isStale
  }
}

async function ask(worker: Worker<Message>, task: object, answer: string): Promise<Message> {
  worker.send(task)
  return worker.next(isType(answer), { withinMs: 30_000, what: answer })
}

function sum(messages: readonly Message[], field: string): number {
  return messages.reduce((total, message) => total + Number(message[field]), 0)
}
