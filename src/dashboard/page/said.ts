import type { HistoryType } from '../protocol.ts'

/** What happened, for people. */
export const SAID: Record<HistoryType, string> = {
  seen: 'held when the dashboard started',
  granted: 'granted',
  'handed over': 'handed over',
  released: 'released',
  lost: 'ran out',
  forced: 'released by force',
  extended: 'extended from here',
}
