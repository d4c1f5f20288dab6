import type { State } from '../state.ts'
import type { LineClients } from './clients.ts'
import { PHASE, PROCESS, processAt, RUN } from './state.ts'

/**
 * What a win breaks. A winner is alone, or among readers, its number is above those that were given before it claimed, and it comes not
 * before those that were in line first. Readers may have the same number, and come in any order among themselves.
 */
export function brokenBy(model: LineClients, next: State, process: number): string | undefined {
  const { shape, configuration } = model
  const at = processAt(shape, process)
  const token = next[at + PROCESS.token]!
  const tooLow = Math.max(next[at + PROCESS.floor]!, next[at + PROCESS.least]! - 1)
  if (token <= tooLow) return `p${process} got ${token} after ${tooLow} had been given`
  for (let other = 0; other < shape.processes; other++) {
    if (other === process || (model.isReader(process) && model.isReader(other))) continue
    const there = processAt(shape, other)
    if (next[there + PROCESS.token] === token) return `p${process} and p${other} both got ${token}`
    const isHeld = next[there + PROCESS.phase] === PHASE.won && next[there + PROCESS.over] === 0
    if (isHeld && configuration.clocks !== 'any') return `p${process} and p${other} hold it at once`
    const isInLine = other >= 1 && other <= configuration.waiters
    // A lease that is handed over goes past the line.
    const isBefore = isInLine && !model.isHeir(process) && other < process && next[there + PROCESS.phase]! < PHASE.won
    if (isBefore && configuration.inLine && next[RUN.disturbed] === 0)
      return `p${process} was served before p${other}, which had come first`
  }
  return undefined
}
