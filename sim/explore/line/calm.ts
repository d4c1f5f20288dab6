import { numbersIn, type State } from '../state.ts'
import type { LineClients } from './clients.ts'
import { isShared } from './steps.ts'
import { LINK, linkAt, NODE, nodeAt, PHASE, PROCESS, processAt, RUN, SENT, sentAt } from './state.ts'

/** More than enough for every waiter to be served. */
const ROUNDS = 12

/**
 * From here on nothing goes wrong any more: everything that is on its way arrives, every waiter comes to the line again and
 * again, and the holder of the lock releases it. Says who is not served. Time passes only if something had gone wrong before;
 * otherwise nobody should have to wait until a lock or an offer runs out.
 */
export function standsStill(model: LineClients, from: State): string | undefined {
  const { shape } = model
  const state = from.slice()
  for (let round = 0; round < ROUNDS; round++) {
    let isOpen = false
    for (let process = shape.processes - 1; process >= 0; process--) {
      deliver(model, state)
      play(model, state, process)
      isOpen ||= isWaiting(model, state, process)
    }
    if (!isOpen) return undefined
    if (state[RUN.disturbed] === 1) lapse(model, state)
  }
  for (let process = 1; process < shape.processes; process++)
    if (isWaiting(model, state, process)) return `p${process} waits although nothing is in its way`
  return undefined
}

function isWaiting(model: LineClients, state: State, process: number): boolean {
  const phase = model.phase(state, process)
  return phase === PHASE.waiting || phase === PHASE.claiming
}

function deliver(model: LineClients, state: State): void {
  const { shape } = model
  for (let node = 0; node < shape.nodes; node++) {
    if (!model.isUp(state, node)) continue
    for (let owner = 1; owner <= shape.owners; owner++) {
      const sent = sentAt(shape, node, owner)
      if ((state[sent]! & SENT.claim) !== 0) model.claim(state, node, owner)
      if ((state[sent]! & SENT.back) !== 0) model.giveBack(state, node, owner)
      if ((state[sent]! & SENT.release) !== 0) model.release(state, node, owner)
      if (state[nodeAt(shape, node) + NODE.lock] === shape.owners + owner && model.isPast(state, owner))
        model.decline(state, node, owner)
    }
  }
}

function play(model: LineClients, state: State, process: number): void {
  const { shape } = model
  const phase = model.phase(state, process)
  if (phase === PHASE.won) return model.end(state, process)
  if (phase === PHASE.waiting) {
    for (let node = 0; node < shape.nodes; node++) if (model.isUp(state, node)) model.enqueue(state, node, process)
    if (model.offers(state, process) < model.quorum) return
    model.beginClaim(state, process)
    deliver(model, state)
  }
  if (model.phase(state, process) !== PHASE.claiming) return
  const [token] = numbersIn(confirmed(model, state, process)).toReversed()
  if (token === undefined || state[processAt(shape, process) + PROCESS.over] === 1) model.lose(state, process)
  else {
    model.win(state, process, token)
    model.end(state, process)
  }
}

/** The numbers that a quorum votes for, after it was asked to confirm each that was granted. */
function confirmed(model: LineClients, state: State, process: number): number {
  const { shape } = model
  let any = 0
  for (let node = 0; node < shape.nodes; node++) any |= state[linkAt(shape, node, process) + LINK.votes]!
  for (const token of numbersIn(any)) {
    for (let node = 0; node < shape.nodes; node++) {
      if (!model.isUp(state, node)) continue
      const link = linkAt(shape, node, process)
      const { answer } = model.step(state, node, 'confirm', model.owner(state, process), token)
      if (answer === 'confirmed') state[link + LINK.votes] = state[link + LINK.votes]! | (1 << token)
    }
  }
  return model.won(state, process)
}

/** Locks, offers and places whose owners are gone run out. */
function lapse(model: LineClients, state: State): void {
  const { shape } = model
  for (let node = 0; node < shape.nodes; node++) {
    const at = nodeAt(shape, node)
    const lock = state[at + NODE.lock]!
    const owner = lock > shape.owners ? lock - shape.owners : lock
    if (lock > 0 && !isShared(lock, shape.owners) && model.isPast(state, owner)) state[at + NODE.lock] = 0
    for (let one = 1; one <= shape.owners; one++) {
      if (!model.isPast(state, one)) continue
      state[at + NODE.line] = state[at + NODE.line]! & ~(1 << one)
      if (model.has(state, node, one)) model.expire(state, node, one)
    }
  }
}
