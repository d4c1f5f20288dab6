import { EngineError, LeaseLostError } from 'ringfence'
import { testLocks } from 'ringfence/testing'
import { expect, test } from 'vitest'
import { sendReport } from './report.mjs'

const { locks, engine, clock } = testLocks()
const pages = []
const send = (page) => void pages.push(page)

test('is sent by one only', async () => {
  const other = await engine.take('report')
  expect(await sendReport(locks, send)).toBe('someone else sends it')
  await other.release()
  expect(await sendReport(locks, send)).toBe('sent')
  expect(pages.splice(0)).toEqual([1, 2, 3])
})

test('goes on for an hour: the lease is renewed', async () => {
  const slowly = async (page) => {
    await clock.advance('20m')
    send(page)
  }
  expect(await sendReport(locks, slowly)).toBe('sent')
  expect(pages.splice(0)).toEqual([1, 2, 3])
})

test('stops after the page at which its lease is lost', async () => {
  const andLose = async (page) => {
    send(page)
    await engine.lose('report')
    await clock.advance('1ms')
  }
  await expect(sendReport(locks, andLose)).rejects.toThrow(LeaseLostError)
  expect(pages.splice(0)).toEqual([1])
})

test('stops when the servers do not answer for as long as the lease lasts, and not before', async () => {
  const inAnOutage = async (page) => {
    send(page)
    engine.outage()
    await clock.advance('16s')
  }
  await expect(sendReport(locks, inAnOutage)).rejects.toThrow(LeaseLostError)
  expect(pages.splice(0)).toEqual([1, 2])
  await expect(sendReport(locks, send)).rejects.toThrow(EngineError)
  engine.recover()
})
