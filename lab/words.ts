import type { Line } from '../sim/timeline.ts'

/** What a step of the story means: the second sentence, after what happened. The first that fits. */
const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [/an update is lost/, 'It had read before the write in between, which is gone now.'],
  [/^refuses a write/, 'The store has seen a higher token, so it knows that this holder is not the latest.'],
  [/writes \d+ with token/, 'It wrote one more than it had read, and nothing came in between.'],
  [/^believes to have the lock/, 'Nothing but its own belief says so from here on.'],
  [
    /^has the lease on/,
    'Until then its own clock says that it may work; the servers keep the others out for a little longer.',
  ],
  [/^signal of the lease/, 'The work is told to stop, before anybody else can get the lease.'],
  [/is over: released|is over: let go/, 'The next one may have it at once.'],
  [/is over: unreachable/, 'No renewal got through in time, so the holder gives it up by its own clock.'],
  [/is over: stolen/, 'A renewal found that the servers do not have it any more.'],
  [/is over/, 'Whoever held it must not write under it any more.'],
  [/^does not get it/, 'It asks again later, or gives up: both are better than two holders.'],
  [/crashes|crash-process/, 'It gives nothing back; only time can end what it held.'],
  [/paused|stands still|^pause/, 'It does not notice: for it the next line of code runs right after the last one.'],
  [/restarts empty|replaced by|restored from|^crash \(memory none/, 'Votes that it gave before are forgotten there.'],
  [/^crash/, 'What it had written to disk is there again when it comes back.'],
  [/takes over|^failover/, 'Replication is asynchronous: the replica may not have the lease.'],
  [/evicts|^evict/, 'For this node the lease never was.'],
  [/clock .* jumps|^jump/, 'Keys expire there, or leases here, before their time.'],
  [/can reach|can not reach|^cut|falls silent|held up/, 'What is sent over a cut line waits, and nobody is told.'],
  [/arrive|come through again/, 'They are as old as the wait was long.'],
  [/deletes the lock key/, 'Whose lock it was by then, it did not look.'],
  [/one vote of three/, 'Nobody has a majority, so all let go and try again.'],
  [/^delay|takes 90 s/, 'Slow is worse than broken: nobody can tell it from lost.'],
  [/^lose-reply|connection to/, 'The command may have been executed; its sender cannot know.'],
  [/^freeze/, 'The node keeps what it has, and answers nobody.'],
  [/renews, and waits/, 'Meanwhile nobody looks at the clock.'],
  [/tries again/, 'If its own first attempt succeeded, it now waits for itself.'],
  [/closes its locks/, 'Everything that it holds is released.'],
]

export function meaningOf({ text }: Line): string {
  return MEANINGS.find(([pattern]) => pattern.test(text))?.[1] ?? 'The others go on as before.'
}

/** What happened, as a sentence. */
export function sentenceOf({ place, text }: Line): string {
  const begins = place === '' || text.startsWith(place) ? '' : `${place}: `
  return `${begins}${text}.`
}

export const ACTIONS = {
  pause: 'pause for 1.5 s',
  crash: 'crash',
  'jump-process': 'clock jumps 2 s ahead',
  cut: 'cut the line for 1 s',
  delay: 'slow the line by 150 ms for 1 s',
  'lose-reply': 'lose replies for 0.5 s',
  freeze: 'freeze for 1 s',
  restart: 'restart with its memory',
  forget: 'restart without memory',
  jump: 'clock jumps 2 s ahead',
  evict: 'evict the lock key',
  failover: 'fail over to the replica',
} as const

export const PROMISES: Readonly<Record<string, string>> = {
  exclusion: 'One holder at a time',
  tokens: 'Later tokens are greater',
  'guarded store': 'Guarded store loses nothing',
  'plain store': 'Store without a guard loses nothing',
}
