import type { EventOf, History } from '../sim/history.ts'

/** A step of the story: what happens in one sentence, and what it means in another. */
export interface Step {
  readonly at: number
  readonly text: string
  readonly meaning: string
  readonly weight: 'fault' | 'lease' | 'store' | 'bad' | 'good'
}

type Fault = EventOf<'fault'>

/** `p0` is called A, and `n0` node 1. */
export function named(text: string): string {
  return text
    .replaceAll(/\bp(\d)(?:\.\d+)?\b/g, (_, index: string) => String.fromCodePoint(65 + Number(index)))
    .replaceAll(/\bn(\d)\b/g, (_, index: string) => `node ${Number(index) + 1}`)
}

/** What a checker says, for somebody who sees one resource. */
export function plain(why: string): string {
  return named(why).replaceAll(/ (held|in) a\b/g, (_, word: string) => (word === 'in' ? '' : ' held it'))
}

export function shortName(machine: string): string {
  return machine === 'store' ? 'store' : machine.startsWith('n') ? named(machine) : `client ${named(machine)}`
}

export function clockTime(ms: number): string {
  return ms < 10_000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`
}

function span(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 100) / 10} s`
}

/** For how long a fault is there: of one that slows a line, not by how much. */
export function lastsMs({ ms, text }: Fault): number {
  return (JSON.parse(text) as { forMs?: number }).forMs ?? ms
}

/** Tokens by rank: what matters is which one is greater. */
export function ranks(history: History): (token: number) => string {
  const tokens = [...new Set(history.of('holds').map(({ token }) => token))].filter(Boolean).sort((a, b) => a - b)
  return (token) => (token === 0 ? '–' : String(tokens.indexOf(token) + 1))
}

export function story(history: History): Step[] {
  const rank = ranks(history)
  const steps: Step[] = []
  const merged = new Map<string, Fault[]>()
  for (const event of history.of('fault')) {
    const name = `${event.at} ${event.text.replaceAll(/"(?:process|node)":\d+,?/g, '')}`
    merged.set(name, [...(merged.get(name) ?? []), event])
  }
  for (const alike of merged.values()) steps.push(...ofFaults(alike))
  for (const { at, process, untilMs } of history.of('pause')) {
    const meaning = 'It does not notice: for it the next line of code runs right after the last one.'
    steps.push({ at, text: `${process} stands still for ${span(untilMs - at)}.`, meaning, weight: 'fault' })
  }
  for (const { at, process } of history.of('crash')) {
    const meaning = 'It gives nothing back; only time can end what it held.'
    steps.push({ at, text: `${process} crashes.`, meaning, weight: 'fault' })
  }
  for (const { at, process, text } of history.of('note')) steps.push({ at, ...ofNote(process, text), weight: 'fault' })
  for (const event of history.of('holds')) steps.push({ at: event.at, ...ofHold(event, rank), weight: 'lease' })
  for (const event of history.of('ends')) steps.push({ at: event.at, ...ofEnd(event), weight: 'lease' })
  for (const event of history.of('write')) steps.push({ at: event.at, ...ofWrite(event, rank) })
  for (const { at, process, outcome } of history.of('return'))
    if (outcome !== 'granted') steps.push({ at, ...ofReturn(process, outcome), weight: 'lease' })
  // Where no node is to remember that, it means nothing.
  for (const { at } of history.setup.restart === 'trust' ? [] : history.of('blank')) {
    const meaning = 'To somebody who has just started they look like a new deployment.'
    steps.push({ at, text: 'No node knows any more that it has been in use.', meaning, weight: 'fault' })
  }
  return steps
    .sort((a, b) => a.at - b.at)
    .map(({ text, meaning, ...rest }) => ({ ...rest, text: capital(named(text)), meaning: capital(named(meaning)) }))
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}

function ofHold({ process, token }: EventOf<'holds'>, rank: (token: number) => string): Pick<Step, 'text' | 'meaning'> {
  return token === 0
    ? { text: `${process} believes that it has the lock.`, meaning: 'Nothing but its own belief says so from here on.' }
    : {
        text: `${process} has the lease, with token ${rank(token)}.`,
        meaning: 'It works until its own clock says stop; the servers keep the others out for a little longer.',
      }
}

function ofReturn(process: string, outcome: string): Pick<Step, 'text' | 'meaning'> {
  const meaning = 'That is better than two holders.'
  // The world closes its locks when it ends.
  if (outcome === 'closed') return { text: `The run ends, and ${process} is still waiting.`, meaning }
  if (outcome === 'timed out') return { text: `${process} gives up: its wait is over.`, meaning }
  return { text: `${process} does not get it: ${outcome}.`, meaning }
}

const ENDS: Readonly<Record<string, readonly [text: string, meaning: string]>> = {
  released: ['gives its lease back', 'The next one may have it at once.'],
  'let go': ['lets go of its lock', 'The next one may have it at once.'],
  unreachable: ['ends its own lease', 'No renewal got through in time, and its signal tells the work to stop.'],
  expired: ['ends its own lease', 'Its time is over by its own clock, and its signal tells the work to stop.'],
  stolen: ['learns that its lease is gone', 'A renewal found that the servers do not have it any more.'],
}

function ofEnd({ process, why }: EventOf<'ends'>): Pick<Step, 'text' | 'meaning'> {
  const [text, meaning] = ENDS[why] ?? [`has no lease any more: ${why}`, 'It must not write under it any more.']
  return { text: `${process} ${text}.`, meaning }
}

function ofWrite(
  { process, value, base, accepted, token }: EventOf<'write'>,
  rank: (token: number) => string,
): Omit<Step, 'at'> {
  if (!accepted) {
    const meaning = `It has seen a higher one, so it knows that ${process} is not the latest holder.`
    return { text: `The store refuses the write of ${process} with token ${rank(token)}.`, meaning, weight: 'good' }
  }
  if (value === base + 1) {
    const meaning = 'It wrote one more than it had read, and nothing came in between.'
    return { text: `${process} writes ${value}.`, meaning, weight: 'store' }
  }
  const meaning = `${process} had read before the write in between, which is gone now.`
  return { text: `${process} writes ${value} over ${base}: an update is lost.`, meaning, weight: 'bad' }
}

const inWords = new Intl.ListFormat('en-GB')

function ofFaults(faults: readonly Fault[]): Step[] {
  const [{ at, name, ms, text: details }] = faults as readonly [Fault]
  const on = faults.map((fault) => fault.on)
  const machines = inWords.format(on)
  const several = on.length > 1
  const lines = `The line${several ? 's' : ''} ${inWords.format(on.map((line) => line.replace('-', ' to ')))}`
  const are = several ? 'are' : 'is'
  const down = several ? 'go down, and come back' : 'goes down, and comes back'
  const step = (text: string, meaning: string): Step[] => [{ at, text, meaning, weight: 'fault' }]
  switch (name) {
    case 'pause':
      return details.includes('write')
        ? step(`${machines} will be paused right before its next write.`, 'Until then it works as ever.')
        : []
    case 'crash-process':
      return []
    case 'jump-process':
      return step(
        `The clock of ${machines} jumps ahead by ${span(ms)}.`,
        'What it holds is over by its own clock, though the servers still keep it.',
      )
    case 'cut':
      return step(`${lines} ${are} cut${forTime(ms)}.`, 'What is sent over a cut line waits, and nobody is told.')
    case 'delay':
      return step(
        `${lines} ${are} slow${forTime(lastsMs(faults[0]!))}.`,
        'Slow is worse than broken: nobody can tell it from lost.',
      )
    case 'lose-reply':
      return step(
        `${lines} ${several ? 'lose' : 'loses'} replies.`,
        'The command may have been executed; its sender cannot know.',
      )
    case 'freeze':
      return step(
        `${machines} ${several ? 'answer' : 'answers'} nobody${forTime(ms)}.`,
        `${several ? 'Each' : 'It'} keeps what it has.`,
      )
    case 'crash':
      if (ms > 1e6)
        return step(`${machines} ${several ? 'die' : 'dies'}.`, 'The others go on, as long as they are a majority.')
      return details.includes('kept')
        ? step(
            `${machines} ${down} after ${span(ms)} with what ${several ? 'they' : 'it'} had.`,
            `${several ? 'Each' : 'It'} had written everything to its disk.`,
          )
        : step(
            `${machines} ${down} empty after ${span(ms)}.`,
            `The votes that ${several ? 'they' : 'it'} gave before are forgotten there.`,
          )
    case 'jump':
      return step(
        `The ${several ? 'clocks' : 'clock'} of ${machines} ${several ? 'jump' : 'jumps'} ahead by ${span(ms)}.`,
        'Keys expire there before their time.',
      )
    case 'evict':
      return step(
        `${machines} ${several ? 'evict' : 'evicts'} the lock key.`,
        `For ${several ? 'these nodes' : 'this node'} the lease never was.`,
      )
    case 'failover':
      return step(
        several ? `${machines} die, and their replicas take over.` : `${machines} dies, and its replica takes over.`,
        'Replication is asynchronous: what came last is not there.',
      )
    default:
      return step(`${machines}: ${name}.`, 'The others go on as before.')
  }
}

function forTime(ms: number): string {
  return ms > 10_000 ? '' : ` for ${span(ms)}`
}

/** What the scripts of the catalogue note down. */
const NOTES: readonly (readonly [RegExp, string])[] = [
  [/crashes/, 'It gives nothing back; only time can end what it held.'],
  [/paused/, 'It does not notice: for it the next line of code runs right after the last one.'],
  [/restarts empty|replaced by|restored from|restart empty/, 'The votes that it gave before are forgotten there.'],
  [/takes over/, 'Replication is asynchronous: the replica may not have the lease.'],
  [/evicts/, 'For this node the lease never was.'],
  [/clock .* jumps/, 'Keys expire there before their time.'],
  [/can reach|can not reach|falls silent|held up/, 'What is sent over a cut line waits, and nobody is told.'],
  [/arrive|come through again/, 'They are as old as the wait was long.'],
  [/deletes the lock key/, 'It did not look whose lock it is by now.'],
  [/one vote of three/, 'Nobody has a majority, so all let go and try again.'],
  [/takes 90 s/, 'The lease will be over long before it arrives.'],
  [/connection to/, 'The command may still be executed; its sender cannot know.'],
  [/renews, and waits/, 'Meanwhile nobody looks at the clock.'],
  [/tries again/, 'If its own first attempt succeeded, it now waits for itself.'],
  [
    /takes that for a no/,
    'The command may have been executed there, and its key then stands in the way, also of its own sender.',
  ],
  [/no majority/, 'It gives back what it has, and tries again after the same time as the others.'],
  [/closes its locks/, 'Everything that it holds is released.'],
]

function ofNote(process: string, text: string): Pick<Step, 'text' | 'meaning'> {
  const isLong = /[.] /.test(text)
  const meaning = isLong ? '' : (NOTES.find(([pattern]) => pattern.test(text))?.[1] ?? 'The others go on as before.')
  const isOfProcess = /^(?:looks|sends|crashes|is |deletes|has |hears|renews|no lock|closes)/.test(text)
  return {
    text: `${isOfProcess ? `${process} ` : ''}${text}.`.replace(' no lock yet,', ' has no lock yet, and'),
    meaning,
  }
}
