import { endOfTurn } from '../../clock.ts'
import type { Request } from './request.ts'
import { slotOf } from './slot.ts'

/** How much goes into one call: a server takes a few microseconds for a step, and serves nobody else until the last one. */
const MOST = { steps: 64, keys: 128 }

/**
 * What is asked of a node in one turn of the event loop goes out together at its end, in the order in which it was asked. A step
 * that is alone does not lose by that: its turn is over at once.
 */
export class Turn {
  /** Sends steps in one call. */
  readonly #dispatch: (together: readonly Request[]) => void
  readonly #isCluster: boolean
  /** Undefined where nothing was asked yet in this turn. */
  #waiting: Request[] | undefined

  /** On a Cluster, steps go together if their keys share a hash slot. */
  constructor(isCluster: boolean, dispatch: (together: readonly Request[]) => void) {
    this.#isCluster = isCluster
    this.#dispatch = dispatch
  }

  add(request: Request): void {
    if (this.#waiting !== undefined) {
      this.#waiting.push(request)
      return
    }
    this.#waiting = [request]
    endOfTurn(this.#end)
  }

  readonly #end = (): void => {
    const waiting = this.#waiting!
    this.#waiting = undefined
    if (waiting.length === 1) return this.#dispatch(waiting)
    const lists = this.#isCluster ? bySlot(waiting) : [waiting]
    for (const list of lists) for (const together of calls(list)) this.#dispatch(together)
  }
}

function bySlot(requests: readonly Request[]): Iterable<Request[]> {
  const lists = new Map<number, Request[]>()
  for (const request of requests) {
    const slot = slotOf(request.step.keys.words[0]!)
    const list = lists.get(slot)
    if (list === undefined) lists.set(slot, [request])
    else list.push(request)
  }
  return lists.values()
}

/** Splits steps into calls, in their order. */
export function* calls(requests: readonly Request[]): Iterable<readonly Request[]> {
  let call: Request[] = []
  let keys = 0
  /** By which the votes of this call are asked for: a node has another one once it was let in again. */
  let vote: string | undefined
  for (const request of requests) {
    const { step, script } = request
    const count = step.keys.words.length
    const isOtherVote = step.vote !== undefined && vote !== undefined && vote !== script.sha
    const isFull = call.length >= MOST.steps || keys + count > MOST.keys
    const isAlone = step.letter === undefined || call[0]?.step.letter === undefined
    if (call.length > 0 && (isFull || isAlone || isOtherVote)) {
      yield call
      call = []
      keys = 0
      vote = undefined
    }
    call.push(request)
    keys += count
    if (step.vote !== undefined) vote = script.sha
  }
  if (call.length > 0) yield call
}
