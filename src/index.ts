export { createLocks, type Locks } from './locks.ts'
export type { Lease, LeaseJson, LeaseState, PermitLease } from './lease.ts'
export type { LeaseOptions, LocksOptions, OnDoubt, WaitOptions } from './options.ts'
export type { AdoptOptions } from './adopt.ts'
export type { ElectOptions } from './elect.ts'
export type { PermitOptions, Semaphore } from './semaphore.ts'
export type { OnceOptions, OnceOutcome } from './once.ts'
export type { ForceReleaseOptions, LockStatus } from './status.ts'
export type { RecordedRun, Run, RunLog, RunsOptions, RunStore } from './runs.ts'
export type { Duration } from './duration.ts'
export type { DenialReason, LockEvent, Observer } from './events.ts'
export type * from './engine.ts'
export type { Clock, Timer } from './clock.ts'
export type { Random } from './random.ts'
export {
  EngineError,
  ForeignTokenError,
  GuardError,
  HeldError,
  LeaseLostError,
  QuorumError,
  RingfenceError,
  StaleTokenError,
  WaitTimeoutError,
  type ErrorJson,
  type LossReason,
  type NodeFailure,
} from './errors.ts'
