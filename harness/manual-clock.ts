// What users of ringfence/testing have too.
export { ManualClock, settled } from '../src/testing/manual-clock.ts'
