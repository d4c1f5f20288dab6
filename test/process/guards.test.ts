import { afterAll, beforeAll, expect, test } from 'vitest'
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

let bank: Bank

beforeAll(async () => {
  bank = await startBank(PROCESSES)
}, 120_000)

afterAll(async () => {
  await bank?.[Symbol.asyncDispose]()
})

test.each([
  ['postgres', 'transaction', SECTIONS],
  ['postgres', 'inside', FEWER],
  ['postgres', 'column', FEWER],
  ['mariadb', 'transaction', SECTIONS],
  ['mariadb', 'inside', FEWER],
  ['mongodb', 'transaction', SECTIONS],
  ['mongodb', 'inside', FEWER],
  ['mongodb', 'documents', FEWER],
  ['redis', 'script', SECTIONS],
  ['http', 'requests', SECTIONS],
  ['objects', 'object', SECTIONS],
  ['file', 'replace', SECTIONS],
])(
  '%s, %s: with the guard no increment of eight processes is lost and no stale write lands, however they are stopped',
  async (store, form, sections) => {
    const { written, balance, landed, disorder, stops, refused, ended } = await increments(store, form, sections)
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
  },
  WITHIN_MS,
)

test.each(['postgres', 'mariadb', 'mongodb', 'redis', 'http', 'objects', 'file'])(
  '%s: the same without the guard loses updates',
  async (store) => {
    const { written, balance, landed, stops } = await increments(store, 'unguarded', SECTIONS)
    console.log(
      `${store}, unguarded: ${written} sections, ${stops} stops past the ttl: ${landed} stale writes landed, ` +
        `${written - balance} updates lost`,
    )
    expect(written).toBe(SECTIONS)
    expect(stops).toBeGreaterThanOrEqual(SECTIONS / 100)
    expect(landed).toBe(stops)
    expect(balance).toBeLessThan(written)
  },
  WITHIN_MS,
)

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

async function increments(store: string, form: string, sections: number): Promise<Figures> {
  const account = `account-${++accounts}`
  const [first] = bank.workers as [Worker<Message>]
  await ask(first, { type: 'create', store, account }, 'created')
  for (const worker of bank.workers) await ask(worker, { type: 'connect', store }, 'connected')
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
  const counts = await Promise.all(bank.workers.map((worker) => nemesis.follow(worker, task)))
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
