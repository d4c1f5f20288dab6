import { asError } from '../../errors.ts'
import type { Landed } from './round-trips.ts'
import type { Script } from './scripts.ts'
import type { Step } from './steps.ts'

/**
 * Hears what becomes of a step on a node: one of the two, once, and never before the call that sent the step has returned.
 * Objects instead of promises, because every lease passes here twice a node.
 */
export interface StepListener<T> {
  answered(node: number, answer: T): void
  failed(node: number, cause: Error): void
  /** Asked before a node that first had to be let in is sent a vote: letting it in may have taken longer than anyone waits. */
  isWanted?(): boolean
}

/** Called with the answer of a node to a step, or with the error that came instead. */
export type Heard = (answer: unknown) => void

/** A step on its way to one node. */
export class Request<T = unknown> {
  /** Another one where the first was not permitted. */
  step: Step<T>
  /** Of a vote: the one by which the node votes now. */
  script: Script
  /** How often the node had to be let in for it. */
  entries = 0
  readonly #to: StepListener<T>
  readonly #node: number
  readonly #landed: Landed | undefined
  readonly #heard: Heard | undefined

  constructor(step: Step<T>, to: StepListener<T>, node: number, landed: Landed | undefined, heard?: Heard) {
    this.step = step
    this.script = step.script
    this.#to = to
    this.#node = node
    this.#landed = landed
    this.#heard = heard
  }

  get isWanted(): boolean {
    return this.#to.isWanted?.() ?? true
  }

  /** `check` throws where the answer is not good enough. */
  answered(reply: unknown, check?: (answer: T) => void): void {
    let answer: T
    try {
      answer = this.step.read(reply, this.step.script)
      check?.(answer)
    } catch (error) {
      return this.failed(error)
    }
    this.#landed?.('answered')
    this.#heard?.(answer)
    this.#to.answered(this.#node, answer)
  }

  failed(cause: unknown): void {
    this.#landed?.('failed', cause)
    this.#heard?.(asError(cause))
    this.#to.failed(this.#node, asError(cause))
  }
}

/** For those who need an answer rarely. */
export class Answer<T> implements StepListener<T> {
  readonly promise: Promise<T>
  readonly isWanted: () => boolean
  answered!: (node: number, answer: T) => void
  failed!: (node: number, cause: Error) => void

  constructor(isWanted: () => boolean = () => true) {
    this.isWanted = isWanted
    this.promise = new Promise((resolve, reject) => {
      this.answered = (_node, answer) => resolve(answer)
      this.failed = (_node, cause) => reject(cause)
    })
  }
}
