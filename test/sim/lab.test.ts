import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { action, drawActions, faultsOf, KINDS, type Kind } from '../../lab/actions.ts'
import { addressOf, readAddress, reading, sceneOf, type Scene } from '../../lab/address.ts'
import { hashOf, play } from '../../lab/play.ts'
import { SCENES } from '../../lab/scenes.ts'
import { story } from '../../lab/tell.ts'
import { Lanes } from '../../lab/lanes.ts'
import { Scale } from '../../lab/scale.ts'
import { verdicts } from '../../lab/verdicts.ts'
import { REMEDIES } from '../../lab/words.ts'
import { playWorld } from '../../lab/world.ts'
import type { EventOf, History } from '../../sim/history.ts'

const failures = SCENES.filter(({ group }) => group === 'failure')

test.each(failures.map((scene) => [scene.name, scene] as const))(
  '%s does damage as it is prepared, and none with any of its remedies',
  async (name, { remedies }) => {
    const scene = sceneOf(name)
    expect((await play(scene)).damage).toBeDefined()
    expect(remedies.length).toBeGreaterThan(0)
    for (const remedy of remedies) {
      const remedied = await play({ ...scene, off: scene.off.filter((one) => one !== remedy) })
      expect([remedy, remedied.damage]).toEqual([remedy, undefined])
    }
  },
)

test('the ten failures are told, each step in two sentences at most', async () => {
  expect(failures.map(({ name }) => name)).toEqual([
    'stale-holder',
    'delete-of-anothers',
    'restart-without-memory',
    'clock-jump',
    'failover',
    'lost-reply',
    'split-vote',
    'herd',
    'renewal-too-late',
    'partition',
  ])
  const texts: string[] = failures.map(({ about }) => about)
  for (const { name } of SCENES) {
    const { history } = await play(sceneOf(name))
    const steps = story(history)
    expect([name, steps.length > 0]).toEqual([name, true])
    texts.push(...steps.map(({ text, meaning }) => `${text} ${meaning}`))
  }
  expect(texts.filter((text) => text.split(/[.!?](?: |$)/).filter(Boolean).length > 2)).toEqual([])
})

const said = (address: string): readonly string[] => reading(`#${address}`).unknown

test('an address that is not known in all its parts says which, and what is there instead', () => {
  expect(said('stale-holderr/all/0')).toEqual(['“stale-holderr” is no scene: “Stale holder” is shown instead'])
  expect(said(`${SCENES.at(-1)!.name}.5`)).toEqual(['“5” is no seed of this scene: it is as prepared'])
  expect(said('free.1.2')).toEqual(['“1.2” is no seed of this scene: it is as prepared'])
  expect(said('free/no-guard,remedy')).toEqual(['“remedy” is no remedy of this scene: nothing is switched off for it'])
  expect(said('free/all/-1/pause.99.1')).toEqual([
    '“-1” is no moment: the beginning is shown',
    '“pause.99.1” is left out',
  ])
  expect(said(`free/all/0${'/kill.0.1'.repeat(41)}`)).toEqual(['only the first 40 faults are in it'])
})

test('what the lab writes into an address, it knows', () => {
  expect(reading('').unknown).toEqual([])
  for (const { name, setting } of SCENES) {
    const scene = { ...sceneOf(name), seed: setting === undefined ? 0 : 7 }
    expect(reading(addressOf(scene))).toEqual({ scene, unknown: [] })
  }
})

async function told(name: string, off = sceneOf(name).off): Promise<string[]> {
  return story((await play({ ...sceneOf(name), off })).history).map(({ text }) => text)
}

test('the story says what nobody could guess from the picture, and nothing that is not so', async () => {
  expect(await told('lost-reply')).toContain('A hears nothing from node 1, and takes that for a no.')
  expect(await told('split-vote')).toContain('B has 1 of 3 votes, which is no majority.')
  // The others know it, as far as nodes are to remember anything.
  expect(await told('restart-without-memory')).not.toContain('No node knows any more that it has been in use.')
  // The part of the network with a majority goes on.
  expect((await told('partition', [])).slice(-4)).toEqual([
    'B has the lease, with token 2.',
    'B writes 2.',
    'B gives its lease back.',
    'The run ends, and A is still waiting.',
  ])
})

test('faults of several machines at once are one step, in the plural', async () => {
  const actions = (['kill', 'evict', 'freeze'] as const).flatMap((kind, index) =>
    [0, 1, 2].map((node) => action(kind, 100 * (3 - index), { node })),
  )
  const steps = story((await play({ ...sceneOf('free'), actions })).history).map(({ text }) => text)
  expect(steps).toContain('Node 1, node 2 and node 3 answer nobody for 1.5 s.')
  expect(steps).toContain('Node 1, node 2 and node 3 evict the lock key.')
  expect(steps).toContain('Node 1, node 2 and node 3 die.')
})

test('the page about the lab has a heading for each failure, and says what helps', () => {
  const page = readFileSync(path.join(import.meta.dirname, '../../docs/lab.md'), 'utf8')
  const told = [...page.matchAll(/^### `#([a-z-]+)`\n\n.* What helps: (.*)\.$/gm)].map(([, name, helps]) => [
    name,
    helps,
  ])
  expect(told).toEqual(
    failures.map(({ name, remedies }) => [name, remedies.map((one) => REMEDIES[one][0].toLowerCase()).join(', or ')]),
  )
})

test('a guard without tokens has nothing to compare', async () => {
  const scene = sceneOf('stale-holder')
  expect((await play({ ...scene, off: [] })).damage).toBeUndefined()
  expect((await play({ ...scene, off: ['tokens'] })).damage).toContain('is lost')
})

test('without renewal, a lease is over before work that takes longer', async () => {
  const scene: Scene = { ...sceneOf('renewal-too-late'), actions: [] }
  const writers = async (off: Scene['off']): Promise<readonly string[]> =>
    (await play({ ...scene, off })).history.of('write').map(({ process }) => process)
  expect(await writers([])).toEqual(['p0', 'p1'])
  expect(await writers(['renewal'])).toEqual(['p1'])
})

test('a reader fails over to the replica, in every scene', async () => {
  for (const { name } of SCENES) {
    const { history } = await play({ ...sceneOf(name), actions: [action('failover', 100, {})] })
    expect([name, history.of('fault').map((fault) => [fault.name, fault.on])]).toEqual([name, [['failover', 'n0']]])
  }
  const one = sceneOf('free-one')
  const { history } = await play({ ...one, actions: [action('failover', 40, {})] })
  expect(verdicts(history).find(({ checker }) => checker === 'exclusion')).toMatchObject({
    verdict: 'unknown',
    why: expect.stringContaining('n0 failed over to its replica'),
  })
})

test('a killed node stays away until it is restarted, with or without what it had', () => {
  const kill = action('kill', 100, { node: 1 })
  const crash = { kind: 'crash', node: 1, atMs: 100 }
  expect(faultsOf([kill])).toEqual([{ ...crash, memory: 'none', forMs: 1e9 }])
  expect(faultsOf([action('restart', 700, { node: 1 }), kill])).toEqual([{ ...crash, memory: 'kept', forMs: 600 }])
  expect(faultsOf([kill, action('forget', 900, { node: 1 })])).toEqual([{ ...crash, memory: 'none', forMs: 800 }])
  expect(faultsOf([kill, action('forget', 900, { node: 2 })]).map(({ kind }) => kind)).toEqual(['crash', 'crash'])
})

/** Messages between client A, or another one, and node 2. */
function answers(
  history: History,
  kind: 'send' | 'exec' | 'heard',
  who = 'p0',
): readonly EventOf<'send' | 'exec' | 'heard'>[] {
  return history.of(kind).filter(({ process, node }) => process.startsWith(who) && node === 'n1')
}

/** Node 2 does not have the lock of client A any more when that one gives it back for the first time. */
function isGone(history: History): boolean {
  return history
    .of('exec')
    .some(({ node, what, at, reply }) => node === 'n1' && what === 'release' && at < 400 && reply[0] === -1)
}

function listensAgain(history: History): boolean {
  return answers(history, 'send', 'p1').filter(({ what }) => what === 'SUBSCRIBE ringfence:freed:{a}').length > 1
}

const [AT_MS, END_MS] = [150, 2500]
const within = (fromMs: number, toMs: number) => (event: { at: number }) => event.at > fromMs && event.at < toMs

/** For each deed at that time, to client A, to node 2, or to the line between them: its fault, and what is to be seen only then. */
const DEEDS: Readonly<Record<Kind, readonly [fault: object, seen: (history: History) => boolean]>> = {
  pause: [
    { kind: 'pause', process: 0, ms: 1500, steps: 0 },
    (history) =>
      history.of('pause').some(({ process, at, untilMs }) => process === 'p0' && at === AT_MS && untilMs === 1650),
  ],
  stall: [
    { kind: 'pause', process: 0, ms: 1500, steps: 'write' },
    (history) => history.of('write').find(({ process }) => process === 'p0')!.at > 1800,
  ],
  crash: [
    { kind: 'crash-process', process: 0, backMs: 1e9 },
    (history) => history.of('crash').some(({ process, at }) => process === 'p0' && at === AT_MS),
  ],
  'jump-process': [
    { kind: 'jump-process', process: 0, ms: 2000 },
    (history) => history.of('until').some(({ process, untilMs }) => process === 'p0' && untilMs === AT_MS),
  ],
  cut: [
    { kind: 'cut', process: 0, node: 1, way: 'both', reset: false, forMs: 1500 },
    (history) => !answers(history, 'exec').some(within(152, 1650)),
  ],
  delay: [
    { kind: 'delay', process: 0, node: 1, ms: 150, forMs: 1500 },
    (history) => {
      const [sent] = answers(history, 'send').filter(within(AT_MS, 1650))
      return answers(history, 'exec').some(({ id, at }) => id === sent?.id && at - sent.at > 150)
    },
  ],
  'lose-reply': [
    { kind: 'lose-reply', process: 0, node: 1, chance: 1, forMs: 500 },
    (history) => answers(history, 'exec').some(within(AT_MS, 650)) && !answers(history, 'heard').some(within(152, 650)),
  ],
  freeze: [
    { kind: 'freeze', node: 1, forMs: 1500 },
    (history) => !answers(history, 'exec', 'p').some(within(152, 1650)),
  ],
  kill: [
    { kind: 'crash', node: 1, memory: 'none', forMs: 1e9 },
    (history) => !answers(history, 'exec', 'p').some(within(AT_MS, END_MS)),
  ],
  restart: [{ kind: 'crash', node: 1, memory: 'kept', forMs: 100 }, listensAgain],
  forget: [{ kind: 'crash', node: 1, memory: 'none', forMs: 100 }, listensAgain],
  jump: [{ kind: 'jump', node: 1, ms: 2000 }, isGone],
  evict: [{ kind: 'evict', node: 1, key: 'a' }, isGone],
  failover: [{ kind: 'failover', node: 1 }, listensAgain],
}

async function played(actions: Scene['actions']): Promise<History> {
  return (await playWorld({ clients: 3, nodes: 3, endMs: END_MS }, 0, new Set(['guard']), faultsOf(actions))).history
}

test('each deed is its own fault, at its own moment, and does to the world what it says', async () => {
  const calm = await played([])
  for (const [kind, [fault, seen]] of Object.entries(DEEDS) as [Kind, (typeof DEEDS)[Kind]][]) {
    const done = await played([action(kind, AT_MS, { process: 0, node: 1 })])
    const faults = done.of('fault').map(({ at, text }) => [at, JSON.parse(text) as unknown])
    expect([kind, faults]).toEqual([kind, [[AT_MS, fault]]])
    expect([kind, 'calm', seen(calm)]).toEqual([kind, 'calm', false])
    expect([kind, 'done', seen(done)]).toEqual([kind, 'done', true])
  }
  expect(Object.keys(DEEDS)).toEqual(Object.keys(KINDS))
})

test('what lasts is drawn for as long as it lasts: a slow line, and a client that has crashed', async () => {
  const actions = [action('delay', 1000, { process: 2, node: 1 }), action('crash', 2000, { process: 1 })]
  const run = await play({ ...sceneOf('free'), actions })
  const scale = new Scale(run.history)
  const { badLines, outages } = new Lanes(run, scale)
  const [slow, down] = [
    { lane: 2, from: scale.placeOf(1000), to: scale.placeOf(2500) },
    { lane: 1, from: scale.placeOf(2000), to: scale.length },
  ]
  expect([badLines, outages]).toEqual([[slow], [down]])
})

async function heldAfter(actions: Scene['actions']): Promise<number> {
  const { history } = await play({ ...sceneOf('free-five'), actions })
  return history.of('holds').filter(({ at }) => at > 2500).length
}

test('five nodes go on without two of them, and not without three', async () => {
  const kills = [0, 1, 2].map((node) => action('kill', 1000, { node }))
  expect(await heldAfter(kills.slice(0, 2))).toBeGreaterThan(5)
  expect(await heldAfter(kills)).toBe(0)
})

test('a seed is a run of its own, and an address is the same run again', async () => {
  const base = sceneOf('free-five')
  const hashes = new Set<string>()
  for (const seed of [0, 1, 2]) {
    const scene = { ...base, seed, actions: drawActions(seed, 4, 5, 8000), atMs: 70 }
    const read = readAddress(addressOf(scene))
    expect(read).toEqual(scene)
    const hash = hashOf((await play(scene)).history)
    expect(hashOf((await play(read)).history)).toBe(hash)
    hashes.add(hash)
  }
  expect(hashes.size).toBe(3)
})

test('an address that nobody has written means something, too', () => {
  expect(readAddress('#herd')).toEqual(sceneOf('herd'))
  expect(readAddress('#free/all')).toMatchObject({ off: [], actions: [], atMs: 0 })
  expect(readAddress('#free.9999999/no-guard,__proto__/-1/pause.99.1/cut.0.8.5/pause.0/kill.1.5.7')).toEqual({
    ...sceneOf('free'),
    actions: [action('cut', 5, { node: 8 })],
  })
  for (const nonsense of ['', '#', '#__proto__/with/1/constructor.0.1', '#%00%'])
    expect(readAddress(nonsense)).toEqual(sceneOf(SCENES[0]!.name))
})
