/**
 * `small`: seconds, in every test run. `large`: minutes to an hour of a core. `unfinished`: no run has come to its end, so that it
 * is only looked at how far it holds.
 */
export type Size = 'small' | 'large' | 'unfinished'

export interface Sized {
  readonly size: Size
}
