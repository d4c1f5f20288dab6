/** Nobody is let go first for longer: some who seemed to wait may be gone. */
const MOST_MS = 100

interface Turn {
  /** How many other processes waited when our last turn ended. */
  readonly rivals: number
  /** How many turns of others have ended since. */
  heard: number
  /** About the time that one of them needs to take its turn. */
  readonly unitMs: number
}

/**
 * Who goes first when several processes wait for the same resource and hear of the same release. Left to chance, one of
 * them may get three turns while another gets none. So everyone counts the releases heard since its own last turn and
 * lets those who have waited longer go ahead: by one short pause for each rival that has not had its turn. Whoever has not
 * had one yet, or has heard as many releases as there are rivals, goes at once.
 */
export class Turns {
  readonly #turns = new Map<string, Turn>()

  /** Our turn is over, and others wait. Answers how long to let them go first. */
  over(resources: readonly string[], rivals: number, tookMs: number): number {
    // A release and an attempt take about as long, and the news must travel too; at most 50 ms, in case that time was unusual.
    const unitMs = Math.min(Math.max(2 * tookMs, 1), 50)
    for (const resource of resources) this.#turns.set(resource, { rivals, heard: 0, unitMs })
    return Math.min(rivals * unitMs, MOST_MS)
  }

  /** Someone else's turn is over. Answers how long to let others go first. */
  heard(resources: readonly string[]): number {
    let delayMs = 0
    for (const resource of resources) {
      const turn = this.#turns.get(resource)
      if (turn === undefined) continue
      turn.heard++
      delayMs = Math.max(delayMs, Math.min((turn.rivals - turn.heard) * turn.unitMs, MOST_MS))
    }
    return delayMs
  }

  /** Nobody here waits for these any more. */
  forget(resources: readonly string[]): void {
    for (const resource of resources) this.#turns.delete(resource)
  }
}
