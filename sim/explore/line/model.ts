import type { Visit } from '../model.ts'
import { numbersIn, type State } from '../state.ts'
import { HOLDER, LineClients } from './clients.ts'
import { standsStill } from './calm.ts'
import { brokenBy } from './promises.ts'
import { isShared, isTooShort, sharedLock } from './steps.ts'
import {
  LineFingerprint,
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
} from './state.ts'

/**
 * Everything that may happen next to a lock with a line: the nodes go by the shipped scripts. Clients are loose: whatever a
 * node has answered to the present owner, its process may have heard or not, and it may confirm any number that was granted.
 */
export class LineModel extends LineClients {
  readonly #next: State
  readonly #fingerprint: LineFingerprint
  #visit: Visit = () => undefined

  constructor(configuration: LineConfiguration) {
    super(configuration)
    this.#next = new Uint16Array(this.shape.words)
    this.#fingerprint = new LineFingerprint(this.shape)
  }

  start(): State {
    const { configuration, shape } = this
    const state = new Uint16Array(shape.words)
    for (const budget of ['duplicates', 'expiries', 'crashes', 'lates', 'giveUps', 'deaths'] as const)
      state[RUN[budget]] = configuration[budget]
    state[RUN.top] = 1
    const holder = processAt(shape, HOLDER)
    state[holder + PROCESS.phase] = configuration.free === true ? PHASE.done : PHASE.won
    state[holder + PROCESS.over] = configuration.free === true ? 1 : 0
    state[holder + PROCESS.token] = 1
    for (let process = 1; process <= configuration.waiters; process++)
      state[processAt(shape, process) + PROCESS.phase] = PHASE.waiting
    for (let node = 0; node < shape.nodes; node++) {
      const at = nodeAt(shape, node)
      state[at + NODE.fence] = 1
      if (configuration.free !== true && this.isReader(HOLDER)) {
        state[at + NODE.lock] = sharedLock(shape.owners)
        state[at + NODE.readers] = 1 << this.ownerOf(HOLDER, 0)
      } else if (configuration.free !== true) state[at + NODE.lock] = this.ownerOf(HOLDER, 0)
      if (!configuration.inLine) continue
      for (let process = 1; process <= configuration.waiters; process++)
        state[at + NODE.line] = state[at + NODE.line]! | (1 << this.ownerOf(process, 0))
    }
    return state
  }

  moves(state: State, visit: Visit): void {
    this.#visit = visit
    let isOpen = false
    for (let process = 1; process < this.shape.processes; process++) isOpen ||= this.phase(state, process) < PHASE.won
    if (!isOpen) return
    for (let process = 0; process < this.shape.processes; process++) this.#process(state, process)
    for (let node = 0; node < this.shape.nodes; node++) {
      this.#crash(state, node)
      if (!this.isUp(state, node)) continue
      for (let owner = 1; owner <= this.shape.owners; owner++) this.#arrivals(state, node, owner)
      this.#expiry(state, node)
    }
  }

  #add(
    text: () => string,
    state: State,
    change: (next: State) => unknown,
    broken?: (next: State) => string | undefined,
  ): void {
    const next = this.#next
    next.set(state)
    change(next)
    let why = broken?.(next)
    if (why === undefined) {
      this.#fingerprint.of(next)
      if (this.#fingerprint.a % this.configuration.calmEvery === 0) why = standsStill(this, next)
    }
    this.#visit(next, why, text)
  }

  #process(state: State, process: number): void {
    const at = processAt(this.shape, process)
    const phase = this.phase(state, process)
    const name = (): string => `p${process}`
    if (phase === PHASE.idle && this.isHeir(process)) this.#handOver(state, process)
    else if (phase === PHASE.idle)
      this.#add(
        () => `${name()} comes by`,
        state,
        (next) => this.beginClaim(next, process),
      )
    if (phase === PHASE.waiting) {
      for (let node = 0; node < this.shape.nodes; node++) {
        if (this.isUp(state, node))
          this.#add(
            () => `${name()} comes to the line of n${node}`,
            state,
            (next) => this.enqueue(next, node, process),
          )
      }
      if (this.offers(state, process) >= this.quorum)
        this.#add(
          () => `${name()} claims`,
          state,
          (next) => this.beginClaim(next, process),
        )
      if (state[RUN.giveUps]! > 0)
        this.#add(
          () => `${name()} gives up`,
          state,
          (next) => {
            next[RUN.giveUps] = next[RUN.giveUps]! - 1
            this.end(next, process)
          },
        )
    }
    if (phase === PHASE.claiming) this.#claiming(state, process, name)
    if (phase === PHASE.won && state[at + PROCESS.over] === 0) {
      this.#add(
        () => `${name()} releases`,
        state,
        (next) => this.end(next, process),
      )
      if (state[RUN.deaths]! > 0)
        this.#add(
          () => `${name()} ends while it holds`,
          state,
          (next) => {
            spend(next, 'deaths')
            next[at + PROCESS.phase] = PHASE.done
            next[at + PROCESS.over] = 1
          },
        )
    }
  }

  #handOver(state: State, heir: number): void {
    const isAdopted = this.configuration.handOver === 'ticket' && this.isHandedOver(state)
    const isHeld = this.phase(state, HOLDER) === PHASE.won && state[processAt(this.shape, HOLDER) + PROCESS.over] === 0
    if (isHeld || isAdopted)
      this.#add(
        () => `p${HOLDER} hands over to p${heir}`,
        state,
        (next) => this.handOver(next, heir),
      )
  }

  #claiming(state: State, process: number, name: () => string): void {
    const at = processAt(this.shape, process)
    if (state[at + PROCESS.over] === 0) {
      for (const token of numbersIn(this.won(state, process)))
        this.#add(
          () => `${name()} has won with ${token}`,
          state,
          (next) => this.win(next, process, token),
          (next) => brokenBy(this, next, process),
        )
    }
    this.#add(
      () => `${name()} has lost`,
      state,
      (next) => this.lose(next, process),
    )
    if (this.isHeir(process)) this.#heirLoses(state, process, name)
    let any = 0
    for (let node = 0; node < this.shape.nodes; node++) any |= state[linkAt(this.shape, node, process) + LINK.votes]!
    for (const token of numbersIn(any)) {
      for (let node = 0; node < this.shape.nodes; node++) {
        const link = linkAt(this.shape, node, process)
        if (!this.isUp(state, node) || ((state[link + LINK.votes]! >> token) & 1) === 1) continue
        this.#add(
          () => `${name()} confirms ${token} at n${node}`,
          state,
          (next) => {
            const { answer } = this.step(next, node, 'confirm', this.owner(next, process), token)
            if (answer === 'confirmed') next[link + LINK.votes] = next[link + LINK.votes]! | (1 << token)
          },
        )
      }
    }
  }

  #heirLoses(state: State, heir: number, name: () => string): void {
    if (this.configuration.handOver === 'ticket' && this.granted(state, heir) >= this.quorum)
      this.#add(
        () => `${name()} has lost by a split`,
        state,
        (next) => this.withdraw(next, heir),
      )
    const owner = this.owner(state, heir)
    for (let node = 0; node < this.shape.nodes; node++) {
      const sent = sentAt(this.shape, node, owner)
      if ((state[sent]! & SENT.claim) === 0) continue
      this.#add(
        () => `hand-over to o${owner} does not arrive at n${node}`,
        state,
        (next) => (next[sent] = next[sent]! & ~SENT.claim),
      )
    }
  }

  #arrivals(state: State, node: number, owner: number): void {
    const sent = state[sentAt(this.shape, node, owner)]!
    const process = this.processOf(owner)
    const isPast = this.isPast(state, owner)
    const phase = this.phase(state, process)
    if ((sent & SENT.claim) !== 0)
      this.#add(
        () => `claim of o${owner} at n${node}`,
        state,
        (next) => this.claim(next, node, owner),
      )
    if ((sent & SENT.release) !== 0)
      this.#add(
        () => `release of o${owner} at n${node}`,
        state,
        (next) => this.release(next, node, owner),
      )
    if ((sent & SENT.back) !== 0)
      this.#add(
        () => `o${owner} gives back at n${node}`,
        state,
        (next) => this.giveBack(next, node, owner),
      )
    if (
      isPast &&
      (sent & SENT.release) === 0 &&
      state[nodeAt(this.shape, node) + NODE.lock] === this.shape.owners + owner
    )
      this.#add(
        () => `o${owner} declines at n${node}`,
        state,
        (next) => this.decline(next, node, owner),
      )
    if (phase === PHASE.won && !isPast && this.has(state, node, owner))
      this.#add(
        () => `extend of o${owner} at n${node}`,
        state,
        (next) => this.step(next, node, 'extend', owner, next[processAt(this.shape, process) + PROCESS.token]),
      )
    if (state[RUN.duplicates]! > 0) {
      if ((sent & SENT.claimed) !== 0)
        this.#add(
          () => `claim of o${owner} at n${node} again`,
          state,
          (next) => {
            spend(next, 'duplicates')
            this.claim(next, node, owner)
          },
        )
      const isLeft = process === HOLDER && this.isHandedOver(state)
      if (isPast && (sent & SENT.release) === 0 && this.#wasUsed(state, owner) && !isLeft)
        this.#add(
          () => `release of o${owner} at n${node} again`,
          state,
          (next) => {
            spend(next, 'duplicates')
            this.release(next, node, owner)
          },
        )
    }
    const isWaiter = process >= 1 && process <= this.configuration.waiters
    if (state[RUN.lates]! > 0 && isWaiter && this.#wasUsed(state, owner) && (isPast || phase > PHASE.waiting)) {
      for (const old of owner > this.ownerOf(process, 0) ? [0, owner - 1] : [0])
        this.#add(
          () => `o${owner} comes late to the line of n${node}${old > 0 ? ` for o${old}` : ''}`,
          state,
          (next) => {
            spend(next, 'lates')
            this.step(next, node, 'enqueue', owner, old)
          },
        )
    }
  }

  #wasUsed(state: State, owner: number): boolean {
    const process = this.processOf(owner)
    return owner <= this.owner(state, process) && this.phase(state, process) !== PHASE.idle
  }

  /** A lock that nobody renews, an offer, or a place in line. */
  #expiry(state: State, node: number): void {
    if (state[RUN.expiries] === 0) return
    const at = nodeAt(this.shape, node)
    const lock = state[at + NODE.lock]!
    const { owners } = this.shape
    const isOffer = lock > owners && !isShared(lock, owners)
    const isAny = this.configuration.clocks === 'any'
    if (isOffer || isTooShort(lock, owners) || (isAny && isShared(lock, owners)))
      this.#add(
        () => `the lock of n${node} expires`,
        state,
        (next) => {
          spend(next, 'expiries')
          next[at + NODE.lock] = 0
        },
      )
    for (let owner = 1; owner <= owners; owner++) {
      if (!this.has(state, node, owner) || !this.mayExpire(state, owner)) continue
      this.#add(
        () => `the lease of o${owner} at n${node} expires`,
        state,
        (next) => {
          spend(next, 'expiries')
          this.expire(next, node, owner)
        },
      )
    }
    for (let owner = 1; owner <= this.shape.owners; owner++) {
      if (((state[at + NODE.line]! >> owner) & 1) === 0) continue
      this.#add(
        () => `the place of o${owner} at n${node} expires`,
        state,
        (next) => {
          spend(next, 'expiries')
          next[at + NODE.line] = next[at + NODE.line]! & ~(1 << owner)
        },
      )
    }
  }

  /** Clocks are good: a key is there until the validity of its owner is over. */
  mayExpire(state: State, owner: number): boolean {
    if (this.configuration.clocks === 'any') return true
    return this.isPast(state, owner) || state[processAt(this.shape, this.processOf(owner)) + PROCESS.over] === 1
  }

  /** A node forgets everything, and sits out until every lease that it may have forgotten is over. */
  #crash(state: State, node: number): void {
    const at = nodeAt(this.shape, node)
    if (state[RUN.crashes]! > 0)
      this.#add(
        () => `n${node} crashes`,
        state,
        (next) => {
          spend(next, 'crashes')
          next[at + NODE.lock] = 0
          next[at + NODE.fence] = 0
          next[at + NODE.line] = 0
          next[at + NODE.readers] = 0
          next[at + NODE.status] = 1
          for (let process = 0; process < this.shape.processes; process++) {
            const there = processAt(this.shape, process)
            const phase = next[there + PROCESS.phase]!
            if (phase === PHASE.claiming || phase === PHASE.won) next[there + PROCESS.begunAtCrash] = 1
          }
        },
      )
    if (this.isUp(state, node)) return
    for (let process = 0; process < this.shape.processes; process++) {
      const there = processAt(this.shape, process)
      const phase = state[there + PROCESS.phase]!
      if (state[there + PROCESS.begunAtCrash] === 1 && (phase === PHASE.claiming || phase === PHASE.won)) return
    }
    this.#add(
      () => `n${node} votes again`,
      state,
      (next) => {
        next[at + NODE.status] = 0
        // Proposals follow the clocks, which are beyond all that was numbered before.
        next[at + NODE.fence] = next[RUN.top]!
        for (let process = 0; process < this.shape.processes; process++)
          next[processAt(this.shape, process) + PROCESS.begunAtCrash] = 0
      },
    )
  }
}

/** Something unusual happens. */
function spend(next: State, budget: 'duplicates' | 'expiries' | 'crashes' | 'lates' | 'deaths'): void {
  next[RUN[budget]] = next[RUN[budget]]! - 1
  next[RUN.disturbed] = 1
}
