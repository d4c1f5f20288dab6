import type { Clock, Timer } from '../../clock.ts'
import type { LeaseRequest } from '../../engine.ts'

/** How long a place waits for its next caller, who only makes one attempt before. Meanwhile, those behind it wait for nobody. */
const KEPT_MS = 1000

type Wish = Pick<LeaseRequest, 'resources' | 'ttlMs' | 'shared'>

/**
 * Places in the servers' own queue whose caller has given up while the next one of this process wants the very same. It takes the
 * place over. Otherwise its process would start again at the end of the queue, behind those that came later, and so might
 * each of its callers until it gives up, too. Servers that number the places themselves leave no other way.
 */
export class KeptPlaces<Place> {
  readonly #clock: Clock
  readonly #drop: (place: Place) => void
  readonly #kept = new Map<string, { readonly place: Place; readonly timer: Timer }>()

  constructor(clock: Clock, drop: (place: Place) => void) {
    this.#clock = clock
    this.#drop = drop
  }

  keep(wish: Wish, place: Place): void {
    this.drop(wish)
    const timer = this.#clock.timer(() => this.drop(wish), KEPT_MS)
    this.#kept.set(nameOf(wish), { place, timer })
  }

  take(wish: Wish): Place | undefined {
    const kept = this.#kept.get(nameOf(wish))
    this.#kept.delete(nameOf(wish))
    kept?.timer.cancel()
    return kept?.place
  }

  /** Nobody will take it over. */
  drop(wish: Wish): void {
    const place = this.take(wish)
    if (place !== undefined) this.#drop(place)
  }

  close(): void {
    for (const { place, timer } of this.#kept.values()) {
      timer.cancel()
      this.#drop(place)
    }
    this.#kept.clear()
  }
}

function nameOf({ resources, ttlMs, shared = false }: Wish): string {
  return JSON.stringify([resources, ttlMs, shared])
}
