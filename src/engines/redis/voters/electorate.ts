import type { Clock } from '../../../clock.ts'
import type { NodeFailure } from '../../../errors.ts'
import { SittingOutError, type Admission, type Prepared } from './admission.ts'
import type { Script } from '../scripts.ts'
import { SameServerError } from '../errors.ts'
import { isUnique } from './same-server.ts'
import { LEVEL, type NodeLook } from './stamp.ts'
import {
  dependsOnOthers,
  isNew,
  standingOf,
  TOUCHES,
  type Memory,
  type Others,
  type Rules,
  type Standing,
} from './standing.ts'

/*
 * Who may vote: `standing.ts` is the rule, `stamp.ts` what a node stores about itself, `admission.ts` lets one node in, and this
 * file looks at all of them.
 */

/** What the electorate needs of a node. */
export interface Voter {
  readonly label: string
  readonly admission: Admission
}

/** When to try again after a failure: soon, but not with every lease. */
const TOUCH_AGAIN_MS = 100

/** How long nodes may take. */
export interface TimeLimits {
  /** For a lease of this ttl. */
  timeoutMs(ttlMs: number): number
  /** Rejects if it takes longer. */
  inTime<T>(work: Promise<T>, timeoutMs: number): Promise<T>
}

/** A node, and whether it may vote as far as that could be found out. */
export interface NodeStanding {
  readonly label: string
  readonly look: NodeLook | undefined
  readonly standing: Standing | undefined
  readonly error: Error | undefined
}

interface LookOutcome extends Pick<NodeStanding, 'look' | 'error'> {
  readonly forgetsNothing: boolean
}

/** The nodes of a quorum that may vote, and what this process knows about that. */
export class Electorate {
  readonly #voters: readonly Voter[]
  readonly #rules: Rules
  readonly #clock: Clock
  readonly #limits: TimeLimits
  /** Nodes that are asked whether they may vote. */
  readonly #entering = new Map<string, Promise<Script>>()
  /** Nodes of a new deployment that are being let in. */
  readonly #founding = new Map<Voter, Promise<Script | undefined>>()
  /** In which run each node was last looked at. */
  readonly #runs = new Map<Voter, string>()
  #inUse = false
  #votedMs: number | undefined
  /** When we date the stamp of each node again, if the quorum is in use then. */
  readonly #touchMs = new Map<Voter, number>()

  constructor(voters: readonly Voter[], rules: Rules & { readonly clock: Clock }, limits: TimeLimits) {
    this.#voters = voters
    this.#rules = rules
    this.#clock = rules.clock
    this.#limits = limits
    for (const voter of voters) {
      voter.admission.join(
        // In half of the time that a node has: the caller must still hear why the node does not vote.
        (ttlMs) => this.#shared(voter, limits.timeoutMs(ttlMs) / 2),
        (work) => limits.inTime(work, limits.timeoutMs(Infinity)),
      )
    }
  }

  /** A quorum has just voted or proved a lease. */
  used(): void {
    const now = this.#clock.monotonicMs()
    this.#votedMs = now
    this.#inUse = true
    for (const voter of this.#voters) {
      if (now >= (this.#touchMs.get(voter) ?? now)) void this.#touch(voter, now)
    }
  }

  async #touch(voter: Voter, now: number): Promise<void> {
    this.#touchMs.set(voter, now + TOUCH_AGAIN_MS)
    if (await voter.admission.touch()) this.#touchMs.set(voter, now + this.#rules.sitOutMs / TOUCHES)
  }

  /** Whether each node may vote. Changes nothing on them, and never rejects. */
  async standings(): Promise<readonly NodeStanding[]> {
    return this.#seen(await this.#askAll(this.#limits.timeoutMs(Infinity)), this.#rules.sitOutMs)
  }

  /**
   * The nodes that vote for no client, and those that could not be asked. A client that only looks may have another `maxTtl` than
   * the holders of leases, so the longest time of sitting out for which any node is let in counts. Changes nothing, never rejects.
   * `timeoutMs`: how long a node may take.
   */
  async barred(timeoutMs: number): Promise<readonly NodeFailure[]> {
    const asked = await this.#askAll(timeoutMs)
    const own = this.#rules.sitOutMs
    const inUse = asked.flatMap(({ look }) => [
      ...(look?.isAdmitted === true ? [own] : []),
      ...(look?.otherSitOuts ?? []),
    ])
    return this.#seen(asked, inUse.length === 0 ? own : Math.max(...inUse)).flatMap(
      ({ label, look, standing, error }) => {
        if (standing === undefined) return [{ node: label, cause: error ?? new Error('no answer') }]
        if (standing.kind !== 'out') return []
        const { remainingMs, why } = standing
        return [{ node: label, cause: new SittingOutError(remainingMs, why, look?.since !== undefined) }]
      },
    )
  }

  #askAll(timeoutMs: number): Promise<readonly LookOutcome[]> {
    return Promise.all(
      this.#voters.map(({ admission }) =>
        Promise.all([this.#limits.inTime(admission.look(), timeoutMs), admission.forgetsNothing()]).then(
          ([look, forgetsNothing]) => ({ look, forgetsNothing, error: undefined }),
          (error: Error) => ({ look: undefined, forgetsNothing: false, error }),
        ),
      ),
    )
  }

  #seen(asked: readonly LookOutcome[], sitOutMs: number): readonly NodeStanding[] {
    const looks = asked.map(({ look }) => look)
    if (looks.some((look) => look?.isTraced === true)) this.#inUse = true
    const isNewNow = isNew(looks, this.#memory, this.#rules)
    return this.#voters.map(({ label }, index) => {
      const { look, forgetsNothing, error } = asked[index]!
      if (look === undefined) return { label, look, standing: undefined, error }
      const isAdmitted = sitOutMs === this.#rules.sitOutMs ? look.isAdmitted : look.otherSitOuts.includes(sitOutMs)
      const standing: Standing = isNewNow
        ? { kind: 'welcome', why: 'new' }
        : standingOf({ ...look, isAdmitted }, looks.toSpliced(index, 1), this.#memory, {
            ...this.#rules,
            sitOutMs,
            forgetsNothing,
          })
      return { label, look, standing, error }
    })
  }

  /** Shared by callers that have the same time to wait: the time decides which nodes answer early enough. */
  #shared(voter: Voter, withinMs: number): Promise<Script> {
    const key = `${this.#voters.indexOf(voter)} ${withinMs}`
    let entering = this.#entering.get(key)
    if (entering === undefined) {
      entering = this.#enter(voter, withinMs).finally(() => this.#entering.delete(key))
      this.#entering.set(key, entering)
    }
    return entering
  }

  async #enter(voter: Voter, withinMs: number): Promise<Script> {
    const { admission } = voter
    const look = await this.#look(voter)
    await this.#assertAlone(voter, look.run)
    if (look.isTraced) this.#inUse = true
    const script = admission.use(look) ?? (await this.#founded(voter))
    if (script !== undefined) return script
    // Its scripts were flushed.
    if (look.isAdmitted) return this.#admit(voter, look, true)
    const forgetsNothing = this.#rules.restart === 'auto' && (await admission.forgetsNothing())
    const rules = { ...this.#rules, forgetsNothing }
    const mayBeNew = !this.#inUse && rules.restart === 'auto'
    const others = mayBeNew || dependsOnOthers(look, rules) ? await this.#survey(voter, withinMs) : undefined
    await this.#assertAlone(voter, look.run)
    const founded = await this.#founded(voter)
    if (founded !== undefined) return founded
    const standing = standingOf(look, others, this.#memory, rules)
    if (standing.kind === 'out') {
      await admission.sitOut(look, standing.level, standing.whole)
      throw new SittingOutError(standing.remainingMs, standing.why)
    }
    const goesOn = standing.kind === 'welcome' && standing.why === 'forgets nothing'
    return this.#admit(voter, look, goesOn || look.otherSitOuts.length > 0)
  }

  async #look(voter: Voter): Promise<NodeLook> {
    const look = await voter.admission.look()
    this.#runs.set(voter, look.run)
    return look
  }

  /**
   * Rejects if another client leads to the same server. The other one is looked at again: it may lead elsewhere by now. If it
   * does not answer, what was last seen of it counts.
   */
  async #assertAlone(voter: Voter, run: string): Promise<void> {
    const isTwin = (other: Voter): boolean => other !== voter && this.#runs.get(other) === run
    const twins = isUnique(run) ? this.#voters.filter(isTwin) : []
    await Promise.all(twins.map((twin) => this.#look(twin).catch(() => undefined)))
    const twin = twins.find(isTwin)
    voter.admission.bar(twin !== undefined)
    if (twin === undefined) return
    twin.admission.bar(true)
    throw new SameServerError(twin.label, run)
  }

  async #admit({ admission }: Voter, look: NodeLook, goesOn: boolean): Promise<Script> {
    const prepared = await admission.prepare(look)
    this.#inUse = true
    const script = await admission.admit(prepared, { overrules: LEVEL.sure, goesOn })
    // It restarted in between.
    if (script === undefined) throw new SittingOutError(this.#rules.sitOutMs, { kind: 'restarted' })
    return script
  }

  /**
   * Lets all nodes of a new deployment in at once: after the first of them, it would not look new any more. So all are
   * prepared first, and if one cannot be prepared, none is let in.
   */
  #found(looks: readonly NodeLook[]): void {
    if (this.#founding.size > 0) return
    const preparing = this.#voters.map(({ admission }, index) => admission.prepare(looks[index]!))
    const all = Promise.allSettled(preparing).then((outcomes) => {
      const isReady = outcomes.every(({ status }) => status === 'fulfilled')
      this.#inUse ||= isReady
      return isReady
    })
    for (const [index, voter] of this.#voters.entries()) {
      const founding = this.#foundOne(voter, preparing[index]!, all).finally(() => this.#founding.delete(voter))
      this.#founding.set(voter, founding)
      // Callers that need the node get the error from `#founded`.
      founding.catch(() => undefined)
    }
  }

  async #foundOne(
    { admission }: Voter,
    preparing: Promise<Prepared>,
    all: Promise<boolean>,
  ): Promise<Script | undefined> {
    if (await all) return admission.admit(await preparing, { overrules: LEVEL.used, goesOn: false })
    await preparing
    return undefined
  }

  async #founded(voter: Voter): Promise<Script | undefined> {
    return voter.admission.script ?? (await this.#founding.get(voter))
  }

  /**
   * Looks at all nodes, and returns what the others answered within this time. A deployment that turns out to be new with the
   * last answer is let in also if that answer came later.
   */
  async #survey(voter: Voter, withinMs: number): Promise<Others> {
    const looks: (NodeLook | undefined)[] = this.#voters.map(() => undefined)
    const asking = this.#voters.map(async (_, index) => {
      const look = await this.#look(this.#voters[index]!).catch(() => undefined)
      looks[index] = look
      if (look?.isTraced === true) this.#inUse = true
    })
    const surveyed = Promise.all(asking).then(() => {
      if (haveTwins(looks)) return
      if (isNew(looks, this.#memory, this.#rules)) this.#found(looks as NodeLook[])
    })
    await this.#limits.inTime(surveyed, withinMs).catch(() => undefined)
    return looks.filter((_, index) => this.#voters[index] !== voter)
  }

  get #memory(): Memory {
    const votedAgoMs = this.#votedMs === undefined ? undefined : this.#clock.monotonicMs() - this.#votedMs
    return { inUse: this.#inUse, votedAgoMs }
  }
}

function haveTwins(looks: readonly (NodeLook | undefined)[]): boolean {
  const runs = looks.flatMap((look) => (look !== undefined && isUnique(look.run) ? [look.run] : []))
  return new Set(runs).size < runs.length
}
