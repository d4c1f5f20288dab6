import { expect, test, vi } from 'vitest'
import { drawPlan } from '../../sim/draw.ts'
import { REAL_DRIVERS } from '../../sim/plan.ts'
import { play } from '../../sim/play.ts'
import { SimSocket } from '../../sim/sockets/socket.ts'

test.each(REAL_DRIVERS)('%s gets answers whole, and cut anywhere', { timeout: 120_000 }, async (over) => {
  const push = vi.spyOn(SimSocket.prototype, 'push')
  const { world } = await play({ ...drawPlan(14), over })
  const ends = push.mock.calls.flatMap(([bytes]) => (Buffer.isBuffer(bytes) ? [bytes.toString().endsWith('\r\n')] : []))
  push.mockRestore()
  const parts = ends.filter((isEnd) => !isEnd).length / ends.length
  expect(parts).toBeGreaterThan(0.1)
  expect(parts).toBeLessThan(0.6)
  expect(world.history.of('holds').length).toBeGreaterThan(0)
})
