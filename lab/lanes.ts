import { leasesOf } from '../sim/checkers/leases.ts'
import type { Run } from './play.ts'
import { firstAfter, type Scale } from './scale.ts'
import { lastsMs, ranks } from './tell.ts'

/** One way of a message, from place to place and from lane to lane. */
export interface Wire {
  readonly from: number
  readonly to: number
  readonly fromLane: number
  readonly toLane: number
  readonly client: number
  readonly isReply: boolean
}

/** Something that lasts, in a lane. */
export interface Bar {
  readonly from: number
  readonly to: number
  readonly lane: number
}

export interface LeaseBar extends Bar {
  readonly client: number
  readonly label: string
  /** What its holder's clock says, from each place on. */
  readonly until: readonly { readonly from: number; readonly to: number }[]
}

export interface Mark {
  readonly at: number
  readonly lane: number
}

/** More than this many places: it is looked for everywhere. */
const LONG = 6

/** A run as shapes: places along the time, lanes by number. Made once, and looked at in every frame. */
export class Lanes {
  readonly names: readonly string[]
  readonly leases: readonly LeaseBar[]
  readonly pauses: readonly Bar[]
  /** Nodes that are down or frozen, clients that have crashed. */
  readonly outages: readonly Bar[]
  /** Clients with a line that is cut, slow, or loses replies. */
  readonly badLines: readonly Bar[]
  readonly faults: readonly Mark[]
  /** In the lane of the store, by a client. */
  readonly writes: readonly (Mark & { readonly client: number; readonly came: 'good' | 'bad' | 'refused' })[]
  readonly #wires: readonly Wire[]
  readonly #starts: readonly number[]
  readonly #long: readonly Wire[]

  constructor(run: Run, scale: Scale) {
    const { history } = run
    const place = (ms: number): number => scale.placeOf(ms)
    this.names = [...run.processes, ...run.nodes, ...(history.of('write', 'read').length > 0 ? ['store'] : [])]
    const lane = (name: string): number => this.names.indexOf(name.split('.')[0]!)
    const rank = ranks(history)
    const untils = history.of('holds', 'until')
    this.leases = leasesOf(history).map(({ process, owner, token, fromMs, endMs }) => ({
      lane: lane(process),
      client: lane(process),
      from: place(fromMs),
      to: place(endMs),
      label: token === 0 ? 'lock' : `token ${rank(token)}`,
      until: untils
        .filter((event) => event.owner === owner)
        .map(({ at, untilMs }) => ({ from: place(at), to: place(untilMs) })),
    }))
    this.pauses = history
      .of('pause')
      .map(({ at, untilMs, process }) => ({ from: place(at), to: place(untilMs), lane: lane(process) }))
    const lasting = history.of('fault').map((fault) => ({
      name: fault.name,
      on: fault.on,
      from: place(fault.at),
      to: place(fault.at + lastsMs(fault)),
    }))
    const of = (...names: string[]): Bar[] =>
      lasting
        .filter(({ name }) => names.includes(name))
        .map(({ from, to, on }) => ({ from, to, lane: lane(on.split('-')[0]!) }))
    const starts = history.of('start')
    const crashed = history.of('crash').map(({ at, process }) => {
      const back = starts.find((start) => start.at > at && lane(start.process) === lane(process))
      return { from: place(at), to: place(back?.at ?? Infinity), lane: lane(process) }
    })
    this.outages = [...of('crash', 'freeze'), ...crashed]
    this.badLines = of('cut', 'delay', 'lose-reply')
    this.faults = [
      ...history
        .of('fault')
        .flatMap(({ at, on }) => on.split('-').map((name) => ({ at: place(at), lane: lane(name) }))),
      ...history
        .of('note')
        .map(({ at, process, text }) => ({ at: place(at), lane: lane(/^(n\d)\b/.exec(text)?.[1] ?? process) })),
    ]
    this.writes = history.of('write').map(({ at, process, accepted, value, base }) => ({
      at: place(at),
      client: lane(process),
      lane: lane('store'),
      came: accepted ? (value === base + 1 ? 'good' : 'bad') : 'refused',
    }))
    const wires = wiresOf(run, place, lane)
    this.#wires = wires.filter(({ from, to }) => to - from <= LONG)
    this.#long = wires.filter(({ from, to }) => to - from > LONG)
    this.#starts = this.#wires.map(({ from }) => from)
  }

  /** Messages that are to be seen between two places. */
  *wires(from: number, to: number): Generator<Wire> {
    for (const wire of this.#long) yield wire
    const end = firstAfter(this.#starts, to)
    for (let at = firstAfter(this.#starts, from - LONG); at < end; at++) yield this.#wires[at]!
  }
}

function wiresOf({ history }: Run, place: (ms: number) => number, lane: (name: string) => number): Wire[] {
  const sent = new Map(history.of('send').map((event) => [event.id, event]))
  const done = new Map(history.of('exec').map((event) => [event.id, event]))
  const wires: Wire[] = []
  const seen = new Set<string>()
  const add = (wire: Wire): void => {
    // Steps of one call travel together.
    const name = `${wire.from} ${wire.to} ${wire.fromLane} ${wire.toLane}`
    if (!seen.has(name)) wires.push(wire)
    seen.add(name)
  }
  for (const { id, at, node, process } of history.of('exec')) {
    const from = sent.get(id)
    if (from === undefined) continue
    const client = lane(process)
    add({ from: place(from.at), to: place(at), fromLane: client, toLane: lane(node), client, isReply: false })
  }
  for (const { id, at, node, process } of history.of('heard')) {
    const from = done.get(id)
    if (from === undefined) continue
    const client = lane(process)
    add({ from: place(from.at), to: place(at), fromLane: lane(node), toLane: client, client, isReply: true })
  }
  return wires.sort((a, b) => a.from - b.from)
}
