import { cut, delay, quiet, setByHand, Stage } from './stage.ts'
import { notBy, twoHolders, type Scenario } from './scenario.ts'

/** Failures of locks as they are written by hand, or by libraries that leave a step out. */

const crashBeforeRelease: Scenario = {
  name: 'crash-before-release',
  title: 'a holder crashes and never gives its lock back',
  assumption: 'none',
  without: 'SET NX without a time to live',
  remedy: 'every lock is a lease',
  async play(remedied, faults) {
    const stage = new Stage(quiet({ nodes: 1 }), faults)
    stage.start(0, 0, async () => {
      if (remedied) await stage.acquire(0)
      else if (await setByHand(stage, 0, [0], 'p0')) stage.believes(0)
      stage.note(0, 'crashes')
      stage.process(0).crash()
    })
    stage.start(100, 1, async () => {
      if (remedied) return void (await stage.acquire(1, { waitMs: 5000 }))
      while (stage.nowMs < 5000 && !stage.done.has('p1')) {
        if (await setByHand(stage, 1, [0], 'p1')) stage.believes(1)
        await stage.sleep(1, 250)
      }
    })
    await stage.play(6000)
    return { stage, damage: notBy(stage, 'p1', 1500) }
  },
}

const unlockOfAnothers: Scenario = {
  name: 'unlock-of-anothers-lock',
  title: 'a client whose lease ran out deletes the lock of the next holder',
  assumption: 'none',
  without: 'DEL without a look at whose lock it is',
  remedy: 'release compares the owner in one step',
  async play(remedied, faults) {
    const stage = new Stage(quiet({ nodes: 1, processes: 3, ttlMs: 300 }), faults)
    const section = async (process: number, workMs: number): Promise<void> => {
      if (remedied) {
        const lease = await stage.acquire(process, { waitMs: 3000, renew: process !== 0 })
        await stage.sleep(process, workMs)
        if (lease !== undefined) await stage.release(process, lease)
        return
      }
      while (!(await setByHand(stage, process, [0], `p${process}`, 300))) await stage.sleep(process, 20)
      const belief = stage.believes(process, process === 0 ? stage.nowMs + 300 : stage.nowMs + 295)
      await stage.sleep(process, workMs)
      await stage.client(process, 0).run(['DEL', 'a'])
      stage.note(process, 'deletes the lock key')
      belief.end()
    }
    stage.start(0, 0, () => section(0, 400))
    stage.start(310, 1, () => section(1, 250))
    stage.start(390, 2, () => section(2, 50))
    await stage.play(2000)
    return { stage, damage: twoHolders(stage) }
  },
}

/** Redlock without its last step: the time that the acquisition took is not subtracted. */
async function withoutElapsed(stage: Stage, process: number, remedied: boolean): Promise<void> {
  if (remedied) return void (await stage.acquire(process, { ttlMs: 1000, renew: false }))
  if (await setByHand(stage, process, [0, 1, 2], `p${process}`, 1000))
    stage.believes(process, stage.process(process).nowMs + 1000)
}

const pauseDuringAcquire: Scenario = {
  name: 'gc-pause-during-acquire',
  title: 'a process is paused for longer than its lease while the answers wait for it',
  assumption: 'none: a pause is part of life',
  without: 'the time that the acquisition took is not subtracted',
  remedy: 'validity counts from before the first send, and is looked at last',
  async play(remedied, faults) {
    const stage = new Stage(quiet(), faults)
    stage.start(0, 0, () => withoutElapsed(stage, 0, remedied))
    stage.at(1, () => {
      stage.note(0, 'is paused for 1500 ms')
      stage.process(0).pause(1500)
    })
    stage.start(1200, 1, () => withoutElapsed(stage, 1, remedied))
    await stage.play(3000)
    return { stage, damage: twoHolders(stage) }
  },
}

const delayedPackets: Scenario = {
  name: 'delayed-packets',
  title: 'the answers to an acquisition arrive when it is over (Kleppmann, second)',
  assumption: 'none: messages may take any time',
  without: 'the time that the acquisition took is not subtracted',
  remedy: 'validity counts from before the first send, and is looked at last',
  async play(remedied, faults) {
    const stage = new Stage(quiet(), faults)
    const heal = cut(stage, 0, [0, 1, 2], 'from')
    stage.note(0, 'answers to p0 are held up in the network')
    stage.start(0, 0, () => withoutElapsed(stage, 0, remedied))
    stage.start(1200, 1, () => withoutElapsed(stage, 1, remedied))
    stage.at(1500, () => {
      stage.note(0, 'the answers arrive')
      heal()
    })
    await stage.play(3000)
    return { stage, damage: twoHolders(stage) }
  },
}

const splitVote: Scenario = {
  name: 'split-vote',
  title: 'three clients, three nodes, and each gets the vote of the one next to it',
  assumption: 'none',
  without: 'everyone tries again at once after the same time',
  remedy: 'release at once, then the first node decides, with jitter',
  async play(remedied, faults) {
    const stage = new Stage(quiet({ processes: 3, restart: 'trust' }), faults)
    for (const process of [0, 1, 2]) {
      for (const node of [0, 1, 2]) if (node !== process) delay(stage, process, `n${node}`, 3)
      stage.start(0, process, async () => {
        if (remedied) return void (await stage.acquire(process, { waitMs: 3000 }))
        for (let attempt = 0; attempt < 5 && stage.done.size === 0; attempt++) {
          const owner = `p${process}-${attempt}`
          if (await setByHand(stage, process, [0, 1, 2], owner, 1000)) return void stage.believes(process)
          stage.note(process, 'has one vote of three, lets go, and waits 100 ms')
          await stage.client(process, process).run(['DEL', 'a'])
          await stage.sleep(process, 100)
        }
      })
    }
    await stage.play(3000)
    return { stage, damage: stage.done.size === 0 ? 'nobody gets it, round after round' : undefined }
  },
}

const partition: Scenario = {
  name: 'partition',
  title: 'a client on the side of a minority of the nodes, another on the side of the majority',
  assumption: 'none',
  without: 'a majority of the nodes that can be reached is enough',
  remedy: 'a majority of all nodes, however few can be reached',
  async play(remedied, faults) {
    const stage = new Stage(quiet({ restart: 'trust' }), faults)
    cut(stage, 0, [1, 2])
    cut(stage, 1, [0])
    stage.note(0, 'p0 can reach n0 alone, p1 can reach n1 and n2')
    for (const [process, nodes] of [[0], [1, 2]].entries()) {
      stage.start(10 + process, process, async () => {
        if (remedied) return void (await stage.acquire(process, { renew: false }))
        if (await setByHand(stage, process, nodes, `p${process}`, 1000)) stage.believes(process, stage.nowMs + 900)
      })
    }
    await stage.play(2000)
    return { stage, damage: twoHolders(stage) ?? (stage.done.has('p1') ? undefined : 'the majority is stuck') }
  },
}

const renewalStalled: Scenario = {
  name: 'renewal-stalled',
  title: 'a renewal hangs, and the holder goes on',
  assumption: 'none: a network may be silent',
  without: 'the loss is noticed when the renewal fails, and it does not fail',
  remedy: 'a local deadline ends the lease before its time',
  async play(remedied, faults) {
    const stage = new Stage(quiet({ restart: 'trust' }), faults)
    stage.start(0, 0, async () => {
      if (remedied) return void (await stage.acquire(0))
      if (!(await setByHand(stage, 0, [0, 1, 2], 'p0', 1000))) return
      const belief = stage.believes(0)
      await stage.sleep(0, 400)
      stage.note(0, 'renews, and waits for the answers')
      await Promise.all([0, 1, 2].map((node) => stage.client(0, node).run(['PEXPIRE', 'a', '1000'])))
      belief.end()
    })
    stage.at(300, () => {
      stage.note(0, 'the network of p0 falls silent')
      cut(stage, 0, [0, 1, 2])
    })
    stage.start(1500, 1, async () => void (await stage.acquire(1, { waitMs: 1000 })))
    await stage.play(3000)
    return { stage, damage: twoHolders(stage) }
  },
}

const timeoutButSucceeded: Scenario = {
  name: 'timeout-but-succeeded',
  title: 'the answer is lost, the command was not',
  assumption: 'none: an outcome may be unknown',
  without: 'a time-out is taken for a no, and the next attempt meets the own key',
  remedy: 'an unknown outcome is released, also after a late answer',
  async play(remedied, faults) {
    const stage = new Stage(quiet({ nodes: 1, ttlMs: 30_000, maxTtlMs: 30_000 }), faults)
    const heal = cut(stage, 0, [0], 'from')
    stage.note(0, 'answers of n0 to p0 are held up')
    stage.at(2500, () => {
      stage.note(0, 'answers come through again')
      heal()
    })
    stage.start(0, 0, async () => {
      if (remedied) return void (await stage.acquire(0, { waitMs: 20_000 }))
      for (let attempt = 0; stage.nowMs < 20_000; attempt++) {
        const asked = setByHand(stage, 0, [0], `p0-${attempt}`, 30_000)
        const isOurs = await Promise.race([asked, stage.sleep(0, 2000).then(() => false)])
        if (isOurs) return void stage.believes(0)
        stage.note(0, 'no lock yet, tries again')
        await stage.sleep(0, 2000)
      }
    })
    await stage.play(20_000)
    return { stage, damage: notBy(stage, 'p0', 5000) }
  },
}

const lateSetAfterRelease: Scenario = {
  name: 'late-set-after-release',
  title: 'a lost connection delivers its last command after the release',
  assumption: 'none: a command may be executed late',
  without: 'one server: the ghost is in the way until its time to live is over',
  remedy: 'a majority: a ghost on one node is in nobody’s way, and its owner is never used again',
  async play(remedied, faults) {
    const stage = new Stage(
      quiet({ nodes: remedied ? 3 : 1, restart: 'trust', ttlMs: 10_000, maxTtlMs: 10_000 }),
      faults,
    )
    stage.start(0, 0, async () => void (await stage.acquire(0)))
    stage.at(0.5, () => {
      stage.note(0, 'the connection to n0 breaks; the command on its way arrives a second later')
      for (const connection of stage.world.network.link('p0', 'n0').connections) connection.reset(1, 1000)
    })
    stage.start(500, 0, async () => {
      for (const { workload } of stage.world.everyone.slice(0, 1)) {
        stage.note(0, 'closes its locks: everything is released')
        await workload.locks.close()
      }
    })
    stage.start(1500, 1, async () => void (await stage.acquire(1, { waitMs: 9000 })))
    await stage.play(11_000)
    return { stage, damage: notBy(stage, 'p1', 2000) }
  },
}

export const BY_HAND: readonly Scenario[] = [
  crashBeforeRelease,
  unlockOfAnothers,
  pauseDuringAcquire,
  delayedPackets,
  splitVote,
  partition,
  renewalStalled,
  timeoutButSucceeded,
  lateSetAfterRelease,
]
