import { SCENARIOS } from '../sim/scenarios/catalogue.ts'
import { action, type Action } from './actions.ts'
import { SWITCHES, type Setting, type Switch } from './world.ts'

/** Something to look at: a world, what is left out of it, and what happens to it. A reader may change all of that by hand. */
export interface Prepared {
  readonly name: string
  readonly title: string
  /** In two sentences: what is wrong, and what helps. */
  readonly about: string
  readonly group: 'failure' | 'open' | 'catalogue'
  /** Which switches there are; of a scene of the catalogue only its own remedy. */
  readonly switches: readonly (Switch | 'remedy')[]
  readonly off: readonly (Switch | 'remedy')[]
  /** Each of them alone prevents the damage. */
  readonly remedies: readonly (Switch | 'remedy')[]
  readonly actions: readonly Action[]
  /** Of a scene of the catalogue there is none: it has a script. */
  readonly setting?: Setting
}

type Own = Pick<Prepared, 'name' | 'title' | 'about' | 'off' | 'remedies'> & {
  actions: readonly Action[]
  setting: Setting
}

const FOREVER_MS = 20_000

function cuts(
  lines: readonly (readonly [process: number, node: number])[],
  atMs: number,
  forMs = FOREVER_MS,
): Action[] {
  return lines.map(([process, node]) => action('cut', atMs, { process, node, forMs }))
}

const FAILURES: readonly Own[] = [
  {
    name: 'stale-holder',
    title: 'Stale holder',
    about:
      'A client is paused right before its write, for longer than its lease. No lock can prevent that; a store that compares tokens refuses the late write.',
    off: ['guard'],
    remedies: ['guard'],
    actions: [action('stall', 50, { process: 0, forMs: 1300 })],
    setting: { clients: 2, nodes: 3, endMs: 2600, turns: [turn(0, 0, 200), turn(1, 100, 300)] },
  },
  {
    name: 'delete-of-anothers',
    title: 'Delete of another’s lock',
    about:
      'A client whose lease ran out deletes the lock key without a look at whose it is, and lets a third one in. Compared and deleted in one step, the key of another stays.',
    off: ['check-and-delete', 'guard'],
    remedies: ['check-and-delete'],
    actions: [action('pause', 100, { process: 0, forMs: 3200 })],
    setting: {
      clients: 3,
      nodes: 3,
      ttlMs: 3000,
      endMs: 4800,
      turns: [turn(0, 0, 200), turn(1, 50, 800), turn(2, 3320, 300)],
    },
  },
  {
    name: 'restart-without-memory',
    title: 'Restart without memory',
    about:
      'A node restarts empty and votes again, for somebody else. If it sits out until all that it may have forgotten is over, there is one holder.',
    off: ['sit-out', 'guard'],
    remedies: ['sit-out', 'guard'],
    actions: [
      ...cuts(
        [
          [0, 2],
          [1, 0],
        ],
        150,
      ),
      action('forget', 400, { node: 1 }),
    ],
    setting: { clients: 2, nodes: 3, endMs: 2600, turns: [turn(1, 0, 20), turn(0, 210, 600), turn(1, 600, 600)] },
  },
  {
    name: 'clock-jump',
    title: 'Clock jump',
    about:
      'The clock of the one node that both majorities share jumps ahead, and the lease ends there before its time. Nobody can promise exclusion then, but the tokens still tell old from new.',
    off: ['guard'],
    remedies: ['guard'],
    actions: [
      ...cuts(
        [
          [0, 3],
          [0, 4],
          [1, 0],
          [1, 1],
        ],
        150,
      ),
      action('jump', 300, { node: 2 }),
    ],
    setting: { clients: 2, nodes: 5, endMs: 2600, turns: [turn(1, 0, 20), turn(0, 200, 400), turn(1, 350, 400)] },
  },
  {
    name: 'failover',
    title: 'Failover',
    about:
      'A server dies before its replica has the lease, and the replica gives it away again. A guard refuses the older token; a quorum does not rest on one server.',
    off: ['quorum', 'guard'],
    remedies: ['quorum', 'guard'],
    actions: [action('failover', 60, { node: 0 })],
    setting: { clients: 2, nodes: 3, endMs: 2600, turns: [turn(0, 10, 250), turn(1, 150, 400)] },
  },
  {
    name: 'lost-reply',
    title: 'Lost reply',
    about:
      'The command arrives and its answer is lost, which a lock written by hand takes for a no. It then waits for its own key; the shipped one undoes what it does not know of.',
    off: ['protocol'],
    remedies: ['protocol'],
    actions: [action('lose-reply', 0, { process: 0, node: 0, forMs: 5 })],
    setting: { clients: 2, nodes: 1, ttlMs: 5000, endMs: 7000, turns: [turn(0, 0, 300), turn(1, 400, 300)] },
  },
  {
    name: 'split-vote',
    title: 'Split vote',
    about:
      'Three clients each get the vote of the node next to them, again and again, because all try again after the same time. The shipped lock lets one node decide, and waits for random times.',
    off: ['protocol'],
    remedies: ['protocol'],
    actions: [],
    setting: {
      clients: 3,
      nodes: 3,
      endMs: 3500,
      zones: true,
      turns: [turn(0, 10, 300), turn(1, 10, 300), turn(2, 10, 300)],
    },
  },
  {
    name: 'herd',
    title: 'Herd',
    about:
      'Everybody who waits asks all servers again and again, most of the time for nothing. In the shipped lock they stand in line on the servers, and the next one is told.',
    off: ['protocol'],
    remedies: ['protocol'],
    actions: [],
    setting: { clients: 4, nodes: 5, endMs: 2600 },
  },
  {
    name: 'renewal-too-late',
    title: 'Renewal too late',
    about:
      'A renewal hangs in the network, and the holder waits for it and works on while its lock runs out. The shipped lock has a deadline of its own, and ends before the servers let others in.',
    off: ['protocol'],
    remedies: ['protocol'],
    actions: cuts(
      [
        [0, 0],
        [0, 1],
        [0, 2],
      ],
      200,
      2000,
    ),
    setting: { clients: 2, nodes: 3, endMs: 3600, turns: [turn(0, 10, 1500), turn(1, 300, 800)] },
  },
  {
    name: 'partition',
    title: 'Partition',
    about:
      'The network falls into two parts, and each client locks at a server that it can reach. Only one part can have a majority of all nodes.',
    off: ['protocol', 'quorum'],
    remedies: ['protocol', 'quorum'],
    actions: cuts(
      [
        [0, 1],
        [0, 2],
        [1, 0],
      ],
      150,
    ),
    setting: {
      clients: 2,
      nodes: 3,
      endMs: 2600,
      turns: [turn(1, 0, 20), turn(0, 200, 800), turn(1, 300, 800)],
    },
  },
]

const OPEN: readonly Own[] = [
  {
    name: 'free',
    title: 'Three clients, three nodes',
    about: 'Nothing goes wrong until you break something. Choose a machine, and what happens to it.',
    off: ['guard'],
    remedies: [],
    actions: [],
    setting: { clients: 3, nodes: 3, endMs: 8000 },
  },
  {
    name: 'free-five',
    title: 'Four clients, five nodes',
    about:
      'Two nodes may be down, and the clients still have a majority. Kill a third one, and see what becomes of them.',
    off: ['guard'],
    remedies: [],
    actions: [],
    setting: { clients: 4, nodes: 5, endMs: 8000 },
  },
  {
    name: 'free-one',
    title: 'Two clients, one server',
    about: 'One server and its replica, a tenth of a second behind. Fail over while somebody works.',
    off: ['guard'],
    remedies: [],
    actions: [],
    setting: { clients: 2, nodes: 1, endMs: 8000 },
  },
]

function turn(client: number, atMs: number, workMs: number): { client: number; atMs: number; workMs: number } {
  return { client, atMs, workMs }
}

function own(group: 'failure' | 'open'): (scene: Own) => Prepared {
  return (scene) => {
    const one: readonly Switch[] = ['quorum', 'sit-out']
    const switches = SWITCHES.filter((name) => scene.setting.nodes > 1 || !one.includes(name))
    return { ...scene, group, switches }
  }
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}

export const SCENES: readonly Prepared[] = [
  ...FAILURES.map(own('failure')),
  ...OPEN.map(own('open')),
  // Those that are told above have other names there.
  ...SCENARIOS.map(({ name, title, assumption, without, remedy }): Prepared => ({
    name: `catalogue-${name}`,
    title: capital(title),
    about: `Assumption broken: ${assumption}. Without the remedy: ${without}; with it: ${remedy}.`,
    group: 'catalogue',
    switches: ['remedy'],
    off: ['remedy'],
    remedies: ['remedy'],
    actions: [],
  })),
]
