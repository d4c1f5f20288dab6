import { quorumOf } from '../../../src/engines/redis/votes.ts'
import { numbersIn, type State } from '../state.ts'
import {
  FLAG,
  lineShape,
  LINK,
  linkAt,
  NODE,
  nodeAt,
  PHASE,
  PROCESS,
  processAt,
  RUN,
  SENT,
  sentAt,
  type LineConfiguration,
  type LineShape,
} from './state.ts'
import { isShared, LineSteps, type LineCommand, type LineStep } from './steps.ts'

/** The process that holds the lock at the beginning; the waiters come behind it, in the order of their tickets. */
export const HOLDER = 0
/** What it holds it as. */
const OLD_OWNER = 1

/** What the processes do, each a change of a state in place: the nodes go by the shipped scripts. */
export class LineClients {
  readonly shape: LineShape
  readonly configuration: LineConfiguration
  readonly quorum: number
  readonly #steps: LineSteps

  constructor(configuration: LineConfiguration) {
    this.configuration = configuration
    this.shape = lineShape(configuration)
    this.quorum = quorumOf(configuration.nodes)
    this.#steps = new LineSteps(
      this.shape.owners,
      (owner) => this.processOf(owner),
      (owner) => this.isReader(this.processOf(owner)),
    )
  }

  ownerOf(process: number, past: number): number {
    return process * this.configuration.owners + past + 1
  }

  processOf(owner: number): number {
    return Math.floor((owner - 1) / this.configuration.owners)
  }

  isReader(process: number): boolean {
    return this.configuration.readers.includes(process)
  }

  isHeir(process: number): boolean {
    return process >= this.shape.processes - this.configuration.heirs
  }

  /** Whether any heir has begun to take over. */
  isHandedOver(state: State): boolean {
    for (let process = 1; process < this.shape.processes; process++)
      if (this.isHeir(process) && this.phase(state, process) !== PHASE.idle) return true
    return false
  }

  /** The holder holds it no more, also if the heir does not get it. */
  handOver(state: State, heir: number): void {
    const holder = processAt(this.shape, HOLDER)
    state[holder + PROCESS.phase] = PHASE.done
    state[holder + PROCESS.over] = 1
    this.beginClaim(state, heir)
  }

  /** Whether a node has a lease of this owner. */
  has(state: State, node: number, owner: number): boolean {
    const at = nodeAt(this.shape, node)
    if (!this.isReader(this.processOf(owner))) return state[at + NODE.lock] === owner
    return isShared(state[at + NODE.lock]!, this.shape.owners) && ((state[at + NODE.readers]! >> owner) & 1) === 1
  }

  /** The time of an owner's lease on a node is over; of the readers' lock, when it is over for the last of them. */
  expire(state: State, node: number, owner: number): void {
    const at = nodeAt(this.shape, node)
    const left = state[at + NODE.readers]! & ~(1 << owner)
    if (this.isReader(this.processOf(owner))) state[at + NODE.readers] = left
    if (!this.isReader(this.processOf(owner)) || left === 0) state[at + NODE.lock] = 0
  }

  phase(state: State, process: number): number {
    return state[processAt(this.shape, process) + PROCESS.phase]!
  }

  isUp(state: State, node: number): boolean {
    return state[nodeAt(this.shape, node) + NODE.status] === 0
  }

  owner(state: State, process: number): number {
    return this.ownerOf(process, state[processAt(this.shape, process) + PROCESS.past]!)
  }

  /** Nobody waits with it, and nobody holds with it. */
  isPast(state: State, owner: number): boolean {
    const process = this.processOf(owner)
    return this.phase(state, process) === PHASE.done || owner !== this.owner(state, process)
  }

  /** Its process waits with the owner after it, which takes over whatever this one has. */
  isSucceeded(state: State, owner: number): boolean {
    const process = this.processOf(owner)
    if (this.configuration.wrong === 'release and enqueue apart') return false
    return this.phase(state, process) === PHASE.waiting && owner === this.owner(state, process) - 1
  }

  /** An offer that nobody waits for any more is given back, or taken over. */
  decline(state: State, node: number, owner: number): void {
    if (!this.isSucceeded(state, owner)) return this.release(state, node, owner)
    const link = linkAt(this.shape, node, this.processOf(owner))
    state[link + LINK.flags] = state[link + LINK.flags]! | FLAG.takesOver
    this.enqueue(state, node, this.processOf(owner))
  }

  /** A step of an owner on a node, in place. */
  step(state: State, node: number, command: LineCommand, owner: number, number = 0): LineStep {
    const at = nodeAt(this.shape, node)
    const before = {
      lock: state[at + NODE.lock]!,
      fence: state[at + NODE.fence]!,
      line: state[at + NODE.line]!,
      readers: state[at + NODE.readers]!,
    }
    const step = this.#steps.run(command, before, owner, number)
    state[at + NODE.lock] = step.lock
    state[at + NODE.fence] = step.fence
    state[at + NODE.line] = step.line
    state[at + NODE.readers] = step.readers
    state[RUN.top] = Math.max(state[RUN.top]!, step.fence)
    return step
  }

  /** It comes to the line, and takes over the place of the owner before it where it has not done so yet. */
  enqueue(state: State, node: number, process: number): void {
    const link = linkAt(this.shape, node, process)
    const owner = this.owner(state, process)
    const takesOver = (state[link + LINK.flags]! & FLAG.takesOver) !== 0
    const { answer } = this.step(state, node, 'enqueue', owner, takesOver ? owner - 1 : 0)
    const kept = state[link + LINK.flags]! & ~FLAG.takesOver
    state[link + LINK.flags] = answer === 'offered' ? kept | FLAG.offered : kept
  }

  /** A claim arrives. One that nobody waits for any more is undone. */
  claim(state: State, node: number, owner: number): void {
    const process = this.processOf(owner)
    const { answer, number } = this.step(
      state,
      node,
      this.#claimOf(process),
      owner,
      this.isHeir(process) ? OLD_OWNER : 0,
    )
    const sent = sentAt(this.shape, node, owner)
    state[sent] = (state[sent]! & ~SENT.claim) | SENT.claimed
    if (answer !== 'granted') return
    const link = linkAt(this.shape, node, process)
    if (this.isSucceeded(state, owner)) state[link + LINK.flags] = state[link + LINK.flags]! | FLAG.takesOver
    else if (this.isPast(state, owner)) state[sent] = state[sent] | this.#undoOf(state, process)
    else if (this.phase(state, process) === PHASE.claiming)
      state[link + LINK.votes] = state[link + LINK.votes]! | (1 << number)
  }

  #claimOf(process: number): LineCommand {
    if (this.isHeir(process)) return this.configuration.handOver === 'within' ? 'handOver' : 'adopt'
    return process > this.configuration.waiters ? 'acquire' : 'claim'
  }

  #undoOf(state: State, process: number): number {
    const isSplit = state[processAt(this.shape, process) + PROCESS.split] === 1
    return this.isHeir(process) && this.configuration.handOver === 'ticket' && !isSplit ? SENT.back : SENT.release
  }

  giveBack(state: State, node: number, owner: number): void {
    this.step(state, node, 'giveBack', owner, OLD_OWNER)
    const sent = sentAt(this.shape, node, owner)
    state[sent] = state[sent]! & ~SENT.back
  }

  release(state: State, node: number, owner: number): void {
    const process = this.processOf(owner)
    const isLast = owner === this.owner(state, process)
    this.step(state, node, 'release', owner, isLast ? state[processAt(this.shape, process) + PROCESS.token]! : 0)
    const sent = sentAt(this.shape, node, owner)
    state[sent] = state[sent]! & ~SENT.release
  }

  beginClaim(state: State, process: number): void {
    const at = processAt(this.shape, process)
    state[at + PROCESS.phase] = PHASE.claiming
    for (let other = 0; other < this.shape.processes; other++) {
      const token = state[processAt(this.shape, other) + PROCESS.token]!
      const bound = this.isReader(process) && this.isReader(other) ? PROCESS.least : PROCESS.floor
      state[at + bound] = Math.max(state[at + bound]!, token)
    }
    for (let node = 0; node < this.shape.nodes; node++) {
      const sent = sentAt(this.shape, node, this.owner(state, process))
      state[sent] = state[sent]! | SENT.claim
    }
  }

  offers(state: State, process: number): number {
    let count = 0
    for (let node = 0; node < this.shape.nodes; node++)
      count += state[linkAt(this.shape, node, process) + LINK.flags]! & FLAG.offered
    return count
  }

  /** How many nodes have voted for it, whatever the number. */
  granted(state: State, process: number): number {
    let count = 0
    for (let node = 0; node < this.shape.nodes; node++)
      if (state[linkAt(this.shape, node, process) + LINK.votes]! > 0) count++
    return count
  }

  /** The numbers that a quorum has voted for, as a set. */
  won(state: State, process: number): number {
    let won = 0
    let any = 0
    let granted = 0
    for (let node = 0; node < this.shape.nodes; node++) {
      const votes = state[linkAt(this.shape, node, process) + LINK.votes]!
      any |= votes
      if (votes > 0) granted++
    }
    if (this.configuration.wrong === 'no second phase') return granted < this.quorum ? 0 : 1 << numbersIn(any).at(-1)!
    for (const token of numbersIn(any)) {
      let votes = 0
      for (let node = 0; node < this.shape.nodes; node++) {
        const link = linkAt(this.shape, node, process)
        const isOffer =
          this.configuration.wrong === 'offers are votes' && (state[link + LINK.flags]! & FLAG.offered) !== 0
        if (((state[link + LINK.votes]! >> token) & 1) === 1 || isOffer) votes++
      }
      if (votes >= this.quorum) won |= 1 << token
    }
    return won
  }

  win(state: State, process: number, token: number): void {
    const at = processAt(this.shape, process)
    state[at + PROCESS.phase] = PHASE.won
    state[at + PROCESS.token] = token
    this.#forget(state, process)
    if (this.isHeir(process)) this.#releaseOld(state)
  }

  /** What a hand-over has not come to. */
  #releaseOld(state: State): void {
    if (this.configuration.wrong === 'a hand-over leaves the old lock') return
    for (let node = 0; node < this.shape.nodes; node++) {
      const sent = sentAt(this.shape, node, OLD_OWNER)
      state[sent] = state[sent]! | SENT.release
    }
  }

  /** As it does when a quorum has adopted the lease, but not with one number. */
  withdraw(state: State, heir: number): void {
    state[processAt(this.shape, heir) + PROCESS.split] = 1
    this.#releaseOld(state)
    this.end(state, heir)
  }

  /** It leaves the lease to the old owner, which nobody renews. */
  #leaveToOld(state: State, heir: number): void {
    const at = processAt(this.shape, heir)
    for (let node = 0; node < this.shape.nodes; node++) {
      const sent = sentAt(this.shape, node, this.owner(state, heir))
      state[sent] = state[sent]! | SENT.back
    }
    this.#forget(state, heir)
    state[RUN.disturbed] = 1
    state[at + PROCESS.phase] = PHASE.done
    state[at + PROCESS.over] = 1
  }

  /** Another owner takes over the place; without one left, the wait ends. */
  lose(state: State, process: number): void {
    const at = processAt(this.shape, process)
    const { wrong } = this.configuration
    const isLast = state[at + PROCESS.past]! + 1 >= this.configuration.owners || process > this.configuration.waiters
    if (this.isHeir(process)) return this.#withdrawOrLeave(state, process)
    if (isLast) return this.end(state, process)
    const owner = this.owner(state, process)
    this.#forget(state, process)
    state[at + PROCESS.phase] = PHASE.waiting
    state[at + PROCESS.past] = state[at + PROCESS.past]! + 1
    state[at + PROCESS.over] = 0
    for (let node = 0; node < this.shape.nodes; node++) {
      if (wrong === 'a lost claim is not withdrawn') continue
      if (wrong === 'release and enqueue apart') {
        const sent = sentAt(this.shape, node, owner)
        state[sent] = state[sent]! | SENT.release
      } else state[linkAt(this.shape, node, process) + LINK.flags] = FLAG.takesOver
    }
  }

  #withdrawOrLeave(state: State, heir: number): void {
    if (this.configuration.handOver === 'within') this.withdraw(state, heir)
    else this.#leaveToOld(state, heir)
  }

  /** It has released, or gives up: that is sent to every node, for the owner before it too where that may have a place. */
  end(state: State, process: number): void {
    const at = processAt(this.shape, process)
    for (let node = 0; node < this.shape.nodes; node++) {
      const owner = this.owner(state, process)
      const takesOver = (state[linkAt(this.shape, node, process) + LINK.flags]! & FLAG.takesOver) !== 0
      for (const one of takesOver ? [owner - 1, owner] : [owner]) {
        const sent = sentAt(this.shape, node, one)
        state[sent] = state[sent]! | SENT.release
      }
    }
    this.#forget(state, process)
    state[at + PROCESS.phase] = PHASE.done
    state[at + PROCESS.over] = 1
  }

  #forget(state: State, process: number): void {
    for (let node = 0; node < this.shape.nodes; node++) {
      const link = linkAt(this.shape, node, process)
      state[link + LINK.votes] = 0
      state[link + LINK.flags] = 0
    }
  }
}
