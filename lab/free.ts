import { lostUpdate, twoHolders, type Scenario } from '../sim/scenarios/scenario.ts'
import { quiet, Stage } from '../sim/scenarios/stage.ts'

const CLIENTS = 3
const END_MS = 8000

/** Three clients take turns on three nodes, and nothing goes wrong: the faults are the reader's. */
export const FREE: Scenario = {
  name: 'free',
  title: 'three clients take turns on three nodes, until you break something',
  assumption: 'none, until you break one',
  without: 'the store takes every write',
  remedy: 'the store refuses a token lower than the highest it has seen',
  async play(remedied, faults) {
    const stage = new Stage(quiet({ processes: CLIENTS }), faults)
    const store = remedied ? 'guarded' : 'unguarded'
    for (let process = 0; process < CLIENTS; process++) {
      stage.start(20 * process, process, async () => {
        while (stage.nowMs < END_MS) {
          const lease = await stage.acquire(process, { waitMs: END_MS })
          if (lease !== undefined) {
            await stage.count(process, lease, store, 300)
            await stage.release(process, lease)
          }
          await stage.sleep(process, 100)
        }
      })
    }
    await stage.play(END_MS)
    return { stage, damage: lostUpdate(stage, store) ?? twoHolders(stage) }
  },
}
