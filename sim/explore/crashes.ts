import type { Configuration } from './configuration.ts'
import { CLIENT, clientAt, NODE, nodeAt, PHASE, RUN, STATUS, type Shape, type State } from './state.ts'

type Add = (text: () => string, change: (next: State) => void) => void

/** A node crashes, once, and maybe loses its memory; and it may come back. What was on its way may be lost at any time. */
export function crashes(shape: Shape, { crash, clocks }: Configuration, state: State, add: Add): void {
  for (let node = 0; node < shape.nodes; node++) {
    const at = nodeAt(shape, node)
    if (state[RUN.crashes]! > 0) {
      add(
        () => `n${node} crashes`,
        (next) => {
          next[RUN.crashes] = 0
          if (crash === 'kept') return
          next[at + NODE.owner] = crash === 'copy' ? 1 : 0
          next[at + NODE.fence] = crash === 'numbers' ? next[RUN.top]! : crash === 'copy' ? 1 : 0
          if (crash === 'sit-out' || crash === 'late') next[at + NODE.status] = STATUS.sittingOut
          for (let client = 0; client < shape.clients; client++) {
            const there = clientAt(shape, client)
            if (next[there + CLIENT.phase] !== PHASE.idle) next[there + CLIENT.begunAtCrash] = 1
          }
        },
      )
    }
    if (state[at + NODE.status] === STATUS.sittingOut && (clocks === 'any' || isForgottenOver(shape, state))) {
      add(
        () => `n${node} votes again`,
        (next) => {
          next[at + NODE.status] = STATUS.up
          for (let client = 0; client < shape.clients; client++) next[clientAt(shape, client) + CLIENT.begunAtCrash] = 0
          // Proposals follow the clocks, which are beyond all that was numbered before.
          if (crash === 'sit-out') next[at + NODE.fence] = next[RUN.top]!
        },
      )
    }
  }
}

/** Is every lease over that the node may have forgotten? */
function isForgottenOver(shape: Shape, state: State): boolean {
  for (let client = 0; client < shape.clients; client++) {
    const at = clientAt(shape, client)
    const isOver = state[at + CLIENT.over] === 1 || state[at + CLIENT.phase] === PHASE.lost
    if (state[at + CLIENT.begunAtCrash] === 1 && !isOver) return false
  }
  return true
}
